"""The queue engine wakes the workers of a lab with several hosts."""

def test_a_lab_without_a_database_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="in a PostgreSQL, and this lab has none") as error:
        QueueEngine(LabFile(tmp_path, Lab(boards={})))
    assert "database: postgresql://" in (error.value.hint or "")


def test_names_of_queues_fit_into_a_channel() -> None:
    long = "b" * 63
    assert len(f"procrastinate_queue_v1#{queue_of(long)}") <= 63
    assert queue_of("rk1") == "board-rk1"
    assert queue_of(long) != queue_of(long[:-1] + "c")


