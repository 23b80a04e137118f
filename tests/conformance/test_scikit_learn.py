"""scikit-learn on tensors, through a daemon, in a program that sets array_api_dispatch and does nothing else for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..daemon import Daemon
from ..each_case import each_case
from ..puppet import Failed, Puppet
from .conftest import in_turn

ESTIMATORS = (
    "PCA(n_components=3, svd_solver='full')",
    "PCA(n_components=3, svd_solver='full', whiten=True)",
    "PCA(n_components=0.9, svd_solver='full')",
    "PCA(n_components='mle', svd_solver='full')",
    "PCA(n_components=2, svd_solver='covariance_eigh')",
    "PCA(n_components=2, svd_solver='randomized', power_iteration_normalizer='QR', random_state=3)",
    "Ridge(alpha=0.5, solver='svd')",
    "Ridge(alpha=0.5, solver='svd', fit_intercept=False)",
    "RidgeCV(alphas=(0.1, 1.0))",
    "RidgeClassifier(solver='svd')",
    "RidgeClassifierCV(alphas=(0.1, 1.0))",
    "LinearDiscriminantAnalysis(solver='svd')",
    "GaussianNB()",
    "GaussianMixture(2, covariance_type='diag', init_params='random_from_data', random_state=3)",
    "GaussianMixture(2, covariance_type='tied', init_params='random_from_data', random_state=3)",
    "Nystroem(kernel='rbf', n_components=4, random_state=3)",
    "StandardScaler()",
    "MinMaxScaler(feature_range=(-1, 1), clip=True)",
    "MaxAbsScaler()",
    "Normalizer('l1')",
    "Normalizer('l2')",
    "Normalizer('max')",
    "Binarizer(threshold=0.5)",
    "PolynomialFeatures(3, interaction_only=True)",
    "make_pipeline(StandardScaler(), PCA(2, svd_solver='full'), Ridge(solver='svd'))",
    "GridSearchCV(Ridge(solver='svd'), {'alpha': [0.1, 1.0, 10.0]}, cv=3)",
)
# They iterate until they are close enough, and rounding decides how far beyond that they get.
SOLVERS = (
    "CalibratedClassifierCV(GaussianNB(), method='temperature', ensemble=False)",
    "LogisticRegression(solver='lbfgs')",
    "PoissonRegressor(solver='lbfgs')",
)
FUNCTIONS = (
    # classification
    "accuracy_score(y, z)",
    "accuracy_score(y, z, sample_weight=w, normalize=False)",
    "balanced_accuracy_score(y, z)",
    "brier_score_loss(o, P[:, 1])",
    "cohen_kappa_score(y, z)",
    "confusion_matrix(y, z)",
    "d2_log_loss_score(y, P)",
    "f1_score(y, z, average='macro')",
    "fbeta_score(y, z, beta=0.5, average='micro')",
    "hamming_loss(y, z)",
    "jaccard_score(y, z, average=None)",
    "log_loss(y, P)",
    "multilabel_confusion_matrix(y, z)",
    "precision_recall_curve(o, P[:, 1])",
    "precision_recall_fscore_support(y, z)",
    "zero_one_loss(y, z)",
    # regression
    "d2_absolute_error_score(t, u)",
    "d2_tweedie_score(A[0, :], B[0, :])",
    "explained_variance_score(t, u)",
    "max_error(t, u)",
    "mean_absolute_error(t, u)",
    "mean_absolute_percentage_error(t, u)",
    "mean_gamma_deviance(A[0, :], B[0, :])",
    "mean_pinball_loss(t, u, alpha=0.2)",
    "mean_poisson_deviance(A[0, :], B[0, :])",
    "mean_squared_error(t, u, sample_weight=w)",
    "mean_squared_log_error(A, B)",
    "median_absolute_error(t, u)",
    "r2_score(t, u)",
    "r2_score(A, B, multioutput='raw_values')",
    "root_mean_squared_error(t, u)",
    # pairwise
    "chi2_kernel(A, B)",
    "cosine_similarity(A, B)",
    "euclidean_distances(A, B)",
    "laplacian_kernel(A, B)",
    "linear_kernel(A, B)",
    "manhattan_distances(A, B)",
    "paired_cosine_distances(A, B)",
    "pairwise_distances(A, B, metric='cosine')",
    "pairwise_distances_argmin(A, B)",
    "polynomial_kernel(A, B)",
    "rbf_kernel(A)",
    "sigmoid_kernel(A, B)",
    # preprocessing whose input is no rows of features, and functions that split data
    "KernelCenterer().fit_transform(rbf_kernel(A))",
    "LabelBinarizer(neg_label=-1).fit_transform(y)",
    "LabelBinarizer().fit(y).inverse_transform(P)",
    "LabelEncoder().fit_transform(y + 3)",
    "cross_val_predict(Ridge(solver='svd'), X, t, cv=3)",
    "train_test_split(X, y, random_state=3)",
)
# Functions that scikit-learn does not list as supported: they ask NumPy for a conversion, and get the error.
UNABLE = (
    "KBinsDiscretizer(4)",
    "KMeans(3)",
    "KNeighborsClassifier()",
    "LinearRegression()",
    "QuantileTransformer(n_quantiles=5)",
    "RandomForestClassifier(3)",
    "RobustScaler()",
    "TruncatedSVD(2)",
)
MODULES = (
    "calibration cluster decomposition discriminant_analysis ensemble kernel_approximation linear_model metrics "
    "metrics.pairwise mixture naive_bayes neighbors pipeline preprocessing"
)
IMPORTS = f"""
import sys
sys.path.append({str(Path(__file__).parent)!r})
import libraries
from sklearn.model_selection import GridSearchCV, cross_val_predict, train_test_split
for module in {MODULES!r}.split():
    exec(f"from sklearn.{{module}} import *")
"""


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Puppet]:
    """A process that uses scikit-learn on a daemon with a CPU and a simulated accelerator."""
    with (
        Daemon.start(
            tmp_path_factory.mktemp("daemon"), "--device", "cpu:0", "--device", "sim:0", "--device", "sim:1"
        ) as daemon,
        Puppet.start(TENSORD_ADDRESS=daemon.address, SCIPY_ARRAY_API="1") as puppet,
    ):
        puppet.do(IMPORTS)
        yield puppet
        with daemon.connect() as last:
            assert last.trace().verify() == []
        assert "Traceback" not in daemon.log


@each_case(("estimator", "device", "dtype"), in_turn([*ESTIMATORS, *SOLVERS]))
def test_an_estimator_learns_the_same_from_tensors(user, estimator, device, dtype):
    slack = 100 if estimator in SOLVERS else 1
    user.do(f"libraries.check_estimator({estimator!r}, globals(), {device!r}, {dtype!r}, slack={slack})")


@each_case(("function", "device", "dtype"), in_turn(FUNCTIONS))
def test_a_function_says_the_same_of_tensors(user, function, device, dtype):
    user.do(f"libraries.check_expression({function!r}, globals(), {device!r}, {dtype!r})")


@each_case("estimator", UNABLE)
def test_an_estimator_that_is_not_able_to_says_so_and_what_to_do(user, estimator):
    """Otherwise it would wait silently for values, and go on with them elsewhere."""
    with pytest.raises(Failed, match=r"\.numpy\(\), which waits for (its|the) value") as failed:
        user.do(f"libraries.check_estimator({estimator!r}, globals(), 'cpu:0', 'float64')")
    assert failed.value.kind == "TypeError"


@each_case("layout", ["td.split(0)", "td.broadcast"])
def test_pca_and_ridge_learn_the_same_from_global_tensors(user, layout):
    """On a session whose new tensors are global: so are all tensors that the estimators make besides the data."""
    user.do("import tensord as td")
    user.do("s = td.connect()\np = s.placement = td.placement(['sim:0', 'sim:1'])")
    user.do("X, t = libraries.numbers('float64')['X'], libraries.numbers('float64')['t']")
    user.do(f"Xg, tg = s.global_tensor(X, p, {layout}), s.global_tensor(t, p, {layout})")
    user.do("expected = [PCA(3, svd_solver='full').fit_transform(X), Ridge(solver='svd').fit(X, t).predict(X)]")
    user.do(
        "with libraries.dispatching():\n"
        "    found = [PCA(3, svd_solver='full').fit_transform(Xg), Ridge(solver='svd').fit(Xg, tg).predict(Xg)]"
    )
    assert user.do("[x.device == p for x in found]") == [True, True]
    assert user.do("[bool(np.allclose(x.numpy(), y)) for x, y in zip(found, expected)]") == [True, True]
    user.do("s.close()")


def test_what_was_learned_on_one_device_moves_to_another_and_to_numpy(user):
    """By scikit-learn's own means, which are DLPack's."""
    user.do("from sklearn.utils._array_api import move_estimator_to\nxp = libraries.xp")
    user.do("X, t = libraries.numbers('float64')['X'], libraries.numbers('float64')['t']")
    user.do("with libraries.dispatching():\n    there = Ridge(solver='svd').fit(xp.asarray(X), xp.asarray(t))")
    user.do("with libraries.dispatching():\n    moved = move_estimator_to(there, xp, 'sim:0')")
    user.do("with libraries.dispatching():\n    on_sim = moved.predict(xp.asarray(X, device='sim:0'))")
    user.do("with libraries.dispatching():\n    here = move_estimator_to(there, np, 'cpu').predict(X)")
    assert user.do("on_sim.device, type(here) is np.ndarray, np.allclose(on_sim.numpy(), here)") == [
        "sim:0",
        True,
        True,
    ]
