from labctl.engines.base import MemoryNeed
from labctl.runs.planning.memory_fit import MemoryFit

GB = 1_000_000_000


def fit(need: MemoryNeed, memory: int | None, seconds: float | None = None) -> MemoryFit:
    return MemoryFit("q8", need, 3_200_000_000, memory, memory, seconds, 175e6)


def test_a_model_larger_than_memory_is_told_with_what_it_costs() -> None:
    need = MemoryNeed(3_300_000_000, 0, 67_000_000, None)
    assert fit(need, 2 * GB, 18.3).warning() == (
        "q8 will not fit in 2.00 GB: expect to re-read 3.20 GB from storage for every token,"
        " about 18.3 s a token at 175 MB/s"
    )
    assert fit(need, 2 * GB).warning() == (
        "q8 will not fit in 2.00 GB: expect to re-read 3.20 GB from storage for every token"
    )


def test_near_the_border_both_times_are_told() -> None:
    """20 MB decide for an 8B Q2_K on a board of 4 GB."""
    need = MemoryNeed(3_000_000_000, 0, 268_000_000, 10_000_000, program_bytes=51_000_000)
    near = MemoryFit("q2", need, 3_000_000_000, 3_340_000_000, 4 * GB, 17.1, 175e6, 0.6)
    assert near.warning() == (
        "q2 needs 3.33 GB of 3.34 GB, within 15% of what fits: expect 600 ms a token, or to re-read"
        " 3.00 GB from storage for every token, about 17.1 s a token at 175 MB/s"
    )
    unknown = MemoryFit("q2", need, 3_000_000_000, 3_300_000_000, 4 * GB)
    assert unknown.warning() == (
        "q2 needs 3.33 GB of 3.30 GB, within 15% of what fits: it may re-read 3.00 GB from"
        " storage for every token"
    )
    assert near.message().endswith("268 MB KV cache, 10.0 MB compute buffers, 51.0 MB program")


def test_each_part_is_shown() -> None:
    need = MemoryNeed(3_300_000_000, 3_100_000_000, 67_000_000, 150_000_000)
    assert fit(need, 8 * GB).message() == (
        "q8: 6.62 GB of 8.00 GB available: 3.30 GB weights mapped, 3.10 GB repacked,"
        " 67.0 MB KV cache, 150 MB compute buffers"
    )
    read = fit(MemoryNeed(0, 3_300_000_000, 0, 0), 8 * GB).message()
    assert read.startswith("q8: 3.30 GB of 8.00 GB available: 3.30 GB weights read into memory, ")
    assert "KV cache unknown" in fit(MemoryNeed(GB, 0, None, None), None).message()


def test_what_fits_and_what_cannot_be_known_is_no_warning() -> None:
    need = MemoryNeed(GB, 0, 0, 0)
    assert fit(need, 2 * GB).warning() is None
    assert fit(need, None).warning() is None


def test_what_the_kernel_cannot_drop_kills() -> None:
    warning = fit(MemoryNeed(GB, 0, 9 * GB, 0), 2 * GB).warning()
    assert warning == (
        "q8 needs 9.00 GB that the kernel cannot drop, the board has 2.00 GB:"
        " expect it to be killed"
    )


def test_weights_that_were_copied_need_no_second_place() -> None:
    """Loading takes twice the memory; afterwards the pages of the file may go."""
    need = MemoryNeed(1_200_000_000, 1_100_000_000, 0, 0)
    assert (need.total_bytes, need.resident_bytes) == (2_300_000_000, 1_200_000_000)
    assert fit(need, 2 * GB).warning() is None


def test_what_is_free_no_more_may_kill() -> None:
    need = MemoryNeed(GB, 0, 3 * GB, 0)
    tight = MemoryFit("q8", need, GB, 2 * GB, 4 * GB)
    assert tight.warning() == (
        "q8 needs 3.00 GB that the kernel cannot drop, 2.00 GB is available: it may be killed"
    )
