"""The standard's functions on a cluster session: each runs on the node of its tensors, or of its `device`."""

from __future__ import annotations

from inspect import getattr_static
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from ..array_api.fft import Fft
from ..array_api.functions import Functions
from ..array_api.linalg import Linalg
from ..array_api.namespace import NAME, Main, Namespace, NamespaceInfo, absent
from ..array_api.nn import Nn
from ..array_api.random import Random
from ..array_api.special import Special
from ..core.core import Core
from .routing import routed

if TYPE_CHECKING:
    from .cluster import Cluster

F = TypeVar("F", bound=type[Functions])


def on_nodes(family: type[Functions]) -> Any:
    """Class decorator: make each public function of a family run on the node of its arguments."""

    def filled(kind: F) -> F:
        for name in dir(family):
            function = getattr_static(family, name)
            if not name.startswith("_") and isinstance(function, FunctionType):
                setattr(kind, name, routed(function, of_node))
        return kind

    return filled


def of_node(functions: Any, core: Core) -> Any:
    """The same family on one node."""
    return functions.of(core)


class OnCluster(Functions):
    """Functions on all nodes. `_core`: the present core for functions without tensors and devices."""

    _cluster: Cluster

    @property
    def _core(self) -> Core:  # type: ignore[override]
        return self._cluster.default()

    def of(self, core: Core) -> Functions:
        """The functions of one node."""
        raise NotImplementedError


def family(kind: type[Functions]) -> type[Any]:
    """A family of functions on all nodes."""

    @on_nodes(kind)
    class Family(OnCluster, kind):  # type: ignore[misc, valid-type]
        __doc__ = kind.__doc__

        def __init__(self, cluster: Cluster) -> None:
            self._cluster = cluster

        def of(self, core: Core) -> Functions:
            return kind(core)

    Family.__name__ = kind.__name__
    return Family


ClusterLinalg, ClusterFft, ClusterSpecial, ClusterNn, ClusterRandom = map(family, (Linalg, Fft, Special, Nn, Random))


@on_nodes(Main)
class ClusterNamespace(OnCluster, Namespace):
    """The standard's namespace on all nodes."""

    def __init__(self, cluster: Cluster) -> None:
        ModuleType.__init__(self, NAME, Namespace.__doc__)
        self._cluster = cluster
        self._of: dict[str, Namespace] = {}
        self.linalg, self.fft = ClusterLinalg(cluster), ClusterFft(cluster)
        self.special = ClusterSpecial(cluster)
        vars(self)["__getattr__"] = absent

    def of(self, core: Core) -> Namespace:
        namespace = self._of.get(core.node)
        if namespace is None or namespace._core is not core:
            namespace = self._of[core.node] = Namespace(core)
        return namespace

    def __array_namespace_info__(self) -> NamespaceInfo:
        """The capabilities of the namespace, and its devices."""
        return ClusterInfo(self._cluster)


class ClusterInfo(OnCluster, NamespaceInfo):
    """The standard's inspection functions, on all nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def devices(self) -> tuple[str, ...]:
        """Names of all nodes' devices."""
        return tuple(self._cluster.devices())
