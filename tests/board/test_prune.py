import pytest

from labctl.board.prune import Holder, Inventory, PrunePolicy, StoreEntry, choose, find
from labctl.errors import ConfigError

DAY = 86400


def kept(name: str, days: float | None, size_bytes: int = 100) -> StoreEntry:
    sha256 = name[0] * 64
    age = None if days is None else int(days * DAY)
    return StoreEntry(f"store/{sha256}", size_bytes, age, sha256, name)


A, B, C = kept("a.gguf", 40), kept("b.gguf", 10), kept("cli", 1)


def there(
    *objects: StoreEntry,
    partials: tuple[StoreEntry, ...] = (),
    jobs: tuple[StoreEntry, ...] = (),
    pins: tuple[str, ...] = (),
    held: tuple[str, ...] = (),
    free_bytes: int | None = 1000,
    holder: Holder | None = None,
) -> Inventory:
    return Inventory(objects, partials, jobs, frozenset(pins), frozenset(held), free_bytes, holder)


def test_what_is_old_goes() -> None:
    assert choose(there(A, B, C), PrunePolicy(30 * DAY)) == [A]
    assert choose(there(A, B, C), PrunePolicy()) == []


def test_the_longest_unused_goes_until_there_is_room() -> None:
    assert choose(there(C, B, A), PrunePolicy(free_bytes=1000)) == []
    assert choose(there(C, B, A), PrunePolicy(free_bytes=1150)) == [A, B]
    assert choose(there(C, B, A), PrunePolicy(free_bytes=9999)) == [A, B, C]


def test_pins_running_jobs_and_what_is_needed_stay() -> None:
    all_of_it = PrunePolicy(0, 9999)
    assert choose(there(A, B, C, pins=(A.sha256 or "",)), all_of_it) == [B, C]
    assert choose(there(A, B, C, held=(B.sha256 or "",)), all_of_it) == [A, C]
    assert choose(there(A, B, C), PrunePolicy(0, 9999, (C.sha256 or "",))) == [A, B]


def test_what_a_living_controller_may_have_brought_stays() -> None:
    """Also when its run lasts for days: it brought its files before it took the board."""
    everything = PrunePolicy(0, 9999)
    assert choose(there(A, B, C, holder=Holder("other", 3600)), everything) == [A, B]
    assert choose(there(A, B, C, holder=Holder("other", 12 * DAY)), everything) == [A]


def test_a_clock_that_cannot_be_right_lets_nothing_go_under_a_holder() -> None:
    assert choose(there(A, holder=Holder("other", None)), PrunePolicy(0, 9999)) == []
    odd = kept("odd", None)
    assert choose(there(odd, holder=Holder("other", 3600)), PrunePolicy(0, 9999)) == []


def test_a_clock_that_cannot_be_right_vouches_for_no_age() -> None:
    odd = kept("odd", None)
    assert choose(there(odd), PrunePolicy(DAY)) == []
    assert choose(there(odd), PrunePolicy(free_bytes=9999)) == [odd]


def test_leftovers_go_by_age_unless_they_may_be_under_way() -> None:
    part, young = StoreEntry("store/.part-x", 1, 40 * DAY), StoreEntry("store/.part-y", 1, 60)
    job, running = StoreEntry("jobs/1", 1, 40 * DAY), StoreEntry("jobs/2", 1, 40 * DAY)
    found = there(partials=(part, young), jobs=(job, running), held=("jobs/2",))
    assert choose(found, PrunePolicy(30 * DAY)) == [job, part]
    assert choose(found, PrunePolicy(1)) == [job, part]


def test_things_are_found_by_name_or_by_the_beginning_of_their_hash() -> None:
    found = there(A, B, kept("b.gguf", 1))
    assert find(found, "a.gguf") is A
    assert find(found, "aaaaaa") is A
    with pytest.raises(ConfigError, match=r"2 files on the board are called b\.gguf"):
        find(found, "b.gguf")
    with pytest.raises(ConfigError, match="no nothing on the board") as caught:
        find(found, "nothing")
    assert caught.value.hint == "there is: a.gguf, b.gguf"


def test_a_pin_whose_content_is_gone_is_found_by_its_hash() -> None:
    found = there(A, pins=(A.sha256 or "", "d" * 64))
    assert find(found, "dddddd").sha256 == "d" * 64
    assert find(found, "aaaaaa") is A
