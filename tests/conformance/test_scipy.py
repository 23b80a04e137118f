"""SciPy on tensors, through daemons, in a program that sets SCIPY_ARRAY_API and does nothing else for it.

Much of SciPy makes arrays on the default device, wherever its arguments are. So the data, too, is on the default
device: a CPU's with one daemon, a simulated accelerator's with another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from ..daemon import Daemon
from ..each_case import each_case
from ..puppet import Failed, Puppet
from .conftest import in_turn

EXPRESSIONS = (
    "cluster.vq.whiten(A)",
    "differentiate.derivative(lambda x: xp.exp(x), v, order=4, maxiter=2).df",
    "differentiate.jacobian(lambda x: x**2, v[:3], order=4, maxiter=2).df",
    "elementwise.bracket_minimum(lambda x: (x - 2.0) ** 2, A[0, :]).bracket",
    "elementwise.find_minimum(lambda x, c: (x - c) ** 2, (A - 1.0, A + 0.1, A + 2.0), args=(A,)).x",
    "elementwise.find_root(lambda x, c: x**2 - c, (A * 0.0, A + 1.0), args=(A,)).x",
    "fft.fft(v)",
    "fft.fht(v, 0.1, 0.5)",
    "fft.fftfreq(8, xp=xp)",
    "fft.fftn(A, axes=(0, 1), norm='ortho')",
    "fft.fftshift(A)",
    "fft.hfft(A, axis=0)",
    "fft.irfft2(A)",
    "fft.rfft(A, n=9)",
    "integrate.cubature(lambda x: xp.sum(x**2, axis=-1), v[:2], v[:2] + 1.0, rtol=1e-2).estimate",
    "integrate.cumulative_trapezoid(A, B, axis=1, initial=0)",
    "integrate.trapezoid(A, dx=0.5, axis=0)",
    "linalg.block_diag(A, B)",
    "linalg.fiedler(v)",
    "linalg.orthogonal_procrustes(A, B)",
    "optimize.rosen(A)",
    "signal.envelope(v)",
    "signal.fftconvolve(A, B)",
    "signal.freqz_zpk(v[:2], v[2:4], 1.0, worN=16)",
    "signal.gauss_spline(v, 3)",
    "signal.hilbert(v)",
    "signal.resample(v, 32)",
    "signal.windows.get_window('hamming', 8, xp=xp)",
    "signal.windows.taylor(8, xp=xp)",
    "Rotation.from_euler('xyz', A[:, :3]).as_euler('zyx')",
    "Rotation.from_quat(A[:, :4]).as_matrix()",
    "Rotation.from_rotvec(A[:, :3]).apply(B[:, :3])",
    "(Rotation.from_rotvec(A[:, :3]) * Rotation.from_rotvec(B[:, :3])).inv().as_quat()",
    "special.betainc(A + 1.0, B + 2.0, B / 2.0)",
    "special.betaincinv(A + 1.0, B + 2.0, B / 2.0)",
    "special.chdtrc(A * 9.0, B)",
    "special.digamma(A + 1.0)",
    "special.entr(A)",
    "special.erf(A)",
    "special.erfc(A)",
    "special.expit(A)",
    "special.gamma(A + 0.1)",
    "special.gammaincinv(A + 1.0, B / 2.0)",
    "special.gammaln(A + 0.1)",
    "special.hyp1f1(A, B + 1.0, -A)",
    "special.i0e(A)",
    "special.kl_div(A, B)",
    "special.log_ndtr(-A)",
    "special.log_softmax(A, axis=0)",
    "special.logit(A / 2.0)",
    "special.multigammaln(A + 2.0, 3)",
    "special.polygamma(2, A + 0.1)",
    "special.logsumexp(A, axis=1, b=B)",
    "special.ndtr(A)",
    "special.ndtri(A / 2.0)",
    "special.rel_entr(A, B)",
    "special.softmax(A, axis=1)",
    "special.stdtr(5.0, A)",
    "special.stdtrit(5.0, A / 2.0)",
    "special.xlog1py(A, B)",
    "special.xlogy(A - 0.1, B)",
    "special.zeta(A + 1.5)",
    "stats.bootstrap((v,), stats.skew, vectorized=True, n_resamples=20, rng=1, method='percentile').standard_error",
    "stats.boxcox_llf(0.5, A)",
    "stats.circmean(A, axis=1)",
    "stats.describe(A)[2:]",
    "stats.differential_entropy(v)",
    "stats.entropy(A, B, axis=1)",
    "stats.gmean(A, weights=B)",
    "stats.gzscore(A)",
    "stats.hmean(A, axis=1)",
    "stats.iqr(A)",
    "stats.kstat(v, 3)",
    "stats.kurtosis(A, axis=1)",
    "stats.mannwhitneyu(A, B, method='asymptotic').pvalue",
    "stats.moment(A, [2, 3])",
    "stats.pearsonr(t, u).pvalue",
    "stats.permutation_test((A, B), lambda a, b, axis: a.mean(axis) - b.mean(axis), n_resamples=20, rng=1).pvalue",
    "stats.pmean(A, 3)",
    "stats.quantile(A, 0.3, axis=1)",
    "stats.rankdata(y)",
    "stats.sem(A, axis=1)",
    "stats.skewtest(v).pvalue",
    "stats.sigmaclip(v, 1.5, 1.5)",
    "stats.skew(A, axis=1, bias=False)",
    "stats.tmean(A, (0.2, 0.9))",
    "stats.trim_mean(A, 0.1)",
    "stats.ttest_ind(A, B).pvalue",
    "stats.ttest_rel(A, B, axis=1).pvalue",
    "stats.tstd(A)",
    "stats.variation(A)",
    "stats.zmap(A, B)",
    "stats.zscore(A, axis=1)",
)
# Functions implemented only for memory of this process, or based on such a function: the distributions' for p-values.
UNABLE = (
    "cluster.hierarchy.linkage(A)",
    "integrate.simpson(A)",
    "linalg.expm(A[:, :6])",
    "ndimage.gaussian_filter(A, 1.0)",
    "signal.lfilter(v[:3], v[3:6], v)",
    "signal.welch(v)",
    "spatial.distance.cdist(A, B)",
    "stats.mannwhitneyu(A, B)",
)
IMPORTS = f"""
import sys
sys.path.append({str(Path(__file__).parent)!r})
import libraries
from scipy import cluster, differentiate, fft, integrate, linalg, ndimage, optimize, signal, spatial, special, stats
from scipy.optimize import elementwise
from scipy.spatial.transform import Rotation
"""


class User:
    """A process that uses SciPy, on one daemon after the other."""

    def __init__(self, puppet: Puppet, daemons: dict[str, Daemon]) -> None:
        self.puppet = puppet
        self.daemons = daemons
        self.device = ""

    def check(self, expression: str, device: str, dtype: str) -> None:
        """Its value is the same with that default device."""
        if device != self.device:
            address = self.daemons[device].address
            self.puppet.do(f"os.environ['TENSORD_ADDRESS'] = {address!r}\nlibraries.xp._core.as_session().close()")
            self.device = device
        self.puppet.do(f"libraries.check_expression({expression!r}, globals(), None, {dtype!r})")


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """A process that uses SciPy; one daemon begins with a CPU, another one with a simulated accelerator."""

    def start(first: str, second: str) -> Daemon:
        return Daemon.start(tmp_path_factory.mktemp("daemon"), "--device", first, "--device", second)

    with ExitStack() as stack:
        daemons = {
            "cpu:0": stack.enter_context(start("cpu:0", "sim:0")),
            "sim:0": stack.enter_context(start("sim:0", "cpu:0")),
        }
        environment: dict[str, Any] = {"TENSORD_ADDRESS": daemons["cpu:0"].address, "SCIPY_ARRAY_API": "1"}
        puppet = stack.enter_context(Puppet.start(**environment))
        puppet.do(IMPORTS)
        yield User(puppet, daemons)
        for daemon in daemons.values():
            with daemon.connect() as last:
                assert last.trace().verify() == []
            assert "Traceback" not in daemon.log


@each_case(("expression", "device", "dtype"), sorted(in_turn(EXPRESSIONS), key=itemgetter(1)))
def test_a_function_says_the_same_of_tensors(user, expression, device, dtype):
    user.check(expression, device, dtype)


@each_case("expression", UNABLE)
def test_a_function_that_is_not_able_to_says_so_and_what_to_do(user, expression):
    """Otherwise it would wait silently for values, and go on with them elsewhere."""
    with pytest.raises(Failed, match=r"\.numpy\(\), which waits for (its|the) value") as failed:
        user.check(expression, "cpu:0", "float64")
    assert failed.value.kind == "TypeError"
