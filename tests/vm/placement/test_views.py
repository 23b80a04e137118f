"""Views: tensors on the storage of other tensors."""

from __future__ import annotations

from typing import Any

import pytest

from tensord.interpreter.errors import KernelError
from tensord.interpreter.types.meta import Meta
from tensord.vm.model.plan import Plan
from tensord.vm.model.tensor import VmTensor
from tensord.vm.placement import views
from tensord.vm.placement.views import alias, share, view_of

from ..bare_engine import Bare, Client
from ..parts import Parts


@pytest.fixture
def client() -> Client:
    return Bare(inline=False).client()


def plan_of(client: Client, op: str, shape: tuple[int, ...], /, **attributes: Any) -> Plan:
    plan = client.session.plans[client.signature(op, ((shape, "float64"),), tuple(attributes.items()))]
    assert isinstance(plan, Plan)
    return plan


def base_of(client: Client, *shape: int) -> VmTensor:
    tensor, _ = client.bare.engine.residency.new_tensor(Meta.of(shape, "float64"), client.bare.engine.devices["cpu:0"])
    return tensor


class TestLayouts:
    def test_a_transpose_swaps_the_strides(self, client: Client) -> None:
        base = base_of(client, 2, 3)
        view = view_of(plan_of(client, "transpose", (2, 3)), base)
        assert view is not None
        assert (view.meta, view.offset, view.strides) == (Meta.of((3, 2), "float64"), 0, (8, 24))
        assert view.storage is base.storage

    def test_a_view_of_a_view_adds_up(self, client: Client) -> None:
        index = (("slice", 1, None, None),)
        first = view_of(plan_of(client, "getitem", (4,), index=index), base_of(client, 4))
        assert first is not None
        second = view_of(plan_of(client, "getitem", (3,), index=index), first)
        assert second is not None
        assert (first.offset, second.offset, second.strides) == (8, 16, (8,))
        assert second.storage.sharers == 3

    def test_what_strides_cannot_say_is_no_view(self, client: Client) -> None:
        transposed = view_of(plan_of(client, "transpose", (2, 3)), base_of(client, 2, 3))
        assert transposed is not None
        assert view_of(plan_of(client, "reshape", (3, 2), shape=(6,)), transposed) is None
        assert transposed.storage.sharers == 2

    def test_the_meta_of_the_base_has_to_be_known(self, client: Client) -> None:
        base = base_of(client, 2, 3)
        base.meta = None
        assert view_of(plan_of(client, "transpose", (2, 3)), base) is None

    def test_a_plan_remembers_what_it_made_of_a_layout(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        plan = plan_of(client, "transpose", (2, 3))
        first = view_of(plan, base_of(client, 2, 3))
        monkeypatch.setattr(views, "lay_out", None)  # not to be asked again
        again = view_of(plan, base_of(client, 2, 3))
        assert first is not None
        assert again is not None
        assert (first.offset, first.strides) == (again.offset, again.strides)

    def test_it_remembers_also_that_there_is_none(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        plan = plan_of(client, "reshape", (3, 2), shape=(6,))
        transposed = view_of(plan_of(client, "transpose", (2, 3)), base_of(client, 2, 3))
        assert transposed is not None
        assert view_of(plan, transposed) is None
        monkeypatch.setattr(views, "lay_out", None)
        assert view_of(plan, transposed) is None

    def test_it_remembers_no_more_than_a_few(self, client: Client) -> None:
        plan = plan_of(client, "transpose", (2, 3))
        base = base_of(client, 2, 3)
        for offset in range(3 * views.LAYOUTS):
            base.offset = offset
            view_of(plan, base)
        assert len(plan.layouts) <= views.LAYOUTS


class TestSharing:
    def test_a_packed_view_of_everything_counts_as_the_whole(self, client: Client) -> None:
        view = view_of(plan_of(client, "reshape", (2, 3), shape=(6,)), base_of(client, 2, 3))
        assert view is not None
        assert (view.offset, view.strides, view.view_key()) == (0, None, None)

    def test_a_packed_view_of_a_part_does_not(self) -> None:
        parts = Parts()
        base = parts.tensor(4)
        view = share(base, Meta.of((2,), "float64"), 0, (8,), base.home)
        assert (view.offset, view.strides) == (0, (8,))
        assert view.view_key() == (0, (2,), (8,))

    def test_each_view_is_one_more_sharer(self) -> None:
        parts = Parts()
        base = parts.tensor(4)
        share(base, Meta.of((2,), "float64"), 0, (8,), base.home)
        alias(base, base.home)
        assert base.storage.sharers == 3

    def test_a_view_makes_no_instruction_and_takes_no_memory(self, client: Client) -> None:
        x = client.upload([1.0, 2.0, 3.0])
        client.bare.drain()
        scheduler, device = client.bare.engine.scheduler, client.bare.device
        before = scheduler.ids, device.allocated
        number = client.signature("flip", (((3,), "float64"),))
        client.send([0, number, (x,), (client.new(),), 0, 1])
        assert (scheduler.ids, device.allocated) == before
        assert client.fetch(client.ids) == [3.0, 2.0, 1.0]


class TestAliases:
    def test_an_alias_has_the_value_and_a_home_of_its_own(self) -> None:
        parts = Parts("cpu:0", "sim:0")
        base = parts.tensor(4)
        view = share(base, Meta.of((2,), "float64"), 16, (8,), base.home)
        other = alias(view, parts.at("sim:0"))
        assert (other.meta, other.offset, other.strides) == (view.meta, 16, (8,))
        assert other.storage is base.storage
        assert other.home is parts.at("sim:0")

    def test_it_learns_a_pending_meta_with_its_base(self) -> None:
        parts = Parts()
        base, _ = parts.residency.new_tensor(None, parts.here)
        other = alias(base, parts.here)
        parts.scheduler.metas.resolve(base, Meta.of((3,), "float64"))
        assert other.meta is base.meta is not None
        assert base.storage.nbytes == 24

    def test_it_has_the_error_of_a_meta_that_will_never_be_known(self) -> None:
        parts = Parts()
        base, _ = parts.residency.new_tensor(None, parts.here)
        base.meta_error = error = KernelError("bad")
        assert alias(base, parts.here).meta_error is error
        assert base.dependents is None
