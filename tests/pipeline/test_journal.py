"""The versions of a job's subscriptions, with a folder that is a dictionary."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment import Subscription
from catchment.model.errors import CheckpointError, SubscriptionError
from catchment.pipeline.integrity import checksum, sealed
from catchment.pipeline.journal import Journal
from catchment.pipeline.ledger import Ledger, Pin


class MemoryFolder:
    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def __str__(self) -> str:
        return "memory"

    def exists(self, name: str = "") -> bool:
        return any(path == name or path.startswith(f"{name}/") for path in self.files)

    def names(self, name: str = "") -> list[str]:
        prefix = f"{name}/" if name else ""
        return sorted({path[len(prefix) :].split("/")[0] for path in self.files if path.startswith(prefix)})

    def path(self, name: str) -> str:
        return f"memory/{name}"

    def sizes(self, name: str) -> dict[str, int]:
        return {one: len(self.files[f"{name}/{one}"]) for one in self.names(name) if f"{name}/{one}" in self.files}

    def digest(self, name: str) -> str:
        return checksum(self.files[name])

    def read(self, name: str) -> bytes:
        return self.files[name]

    def write(self, name: str, content: bytes) -> None:
        self.files[name] = content

    def delete(self, name: str) -> None:
        self.files = {
            path: text for path, text in self.files.items() if path != name and not path.startswith(f"{name}/")
        }


def subscription(name: str, where: str = "TRUE") -> Subscription:
    return Subscription(name, sql=f"SELECT * FROM traffic WHERE {where}")


def journal(folder: MemoryFolder, *declared: Subscription, **settings: object) -> Journal:
    return Journal(folder, settings, declared)  # type: ignore[arg-type]


def active(opened: Journal) -> dict[str, tuple[str, int]]:
    return {name: (text.sql[-8:].split()[-1], at) for name, (text, at) in opened.active(opened.version).items()}


def test_changes_survive_and_each_is_a_version() -> None:
    folder = MemoryFolder()
    first = journal(folder, subscription("a"))
    assert (first.subscribe(subscription("b")), first.unsubscribe("a"), first.version) == (2, 3, 3)
    again = journal(folder, subscription("a"))
    assert again.version == 3
    assert active(again) == {"b": ("TRUE", 2)}
    assert again.active(1).keys() == {"a"}


def test_started_with_other_subscriptions_the_difference_is_a_change() -> None:
    folder = MemoryFolder()
    journal(folder, subscription("a"), subscription("b")).subscribe(subscription("c"))
    again = journal(folder, subscription("b", "x = 1"), subscription("d"))
    assert {name: at for name, (_, at) in again.active(again.version).items()} == {"b": 3, "c": 2, "d": 3}
    assert journal(folder, subscription("b", "x = 1"), subscription("d")).version == 3


def test_what_was_changed_while_running_and_then_declared_stays_as_it_is() -> None:
    folder = MemoryFolder()
    running = journal(folder, subscription("a"))
    running.unsubscribe("a")
    running.subscribe(subscription("a", "x = 1"))
    again = journal(folder, subscription("a", "x = 1"))
    assert again.version == 3, "its open windows are not dropped"


def test_a_declaration_that_changed_replaces_what_was_subscribed_while_running() -> None:
    folder = MemoryFolder()
    journal(folder).subscribe(subscription("x", "a = 1"))
    again = journal(folder, subscription("x", "b = 2"))
    assert active(again) == {"x": ("2", 3)}, "a new incarnation, by the declared text"


def test_an_unchanged_declaration_leaves_what_was_changed_while_running() -> None:
    folder = MemoryFolder()
    running = journal(folder, subscription("x", "a = 1"), subscription("y"))
    running.unsubscribe("x")
    running.subscribe(subscription("x", "c = 3"))
    running.unsubscribe("y")
    again = journal(folder, subscription("x", "a = 1"), subscription("y"))
    assert active(again) == {"x": ("3", 3)}
    once_more = journal(folder, subscription("x", "a = 1"), subscription("z"))
    assert active(once_more) == {"x": ("3", 3), "z": ("TRUE", 5)}


@given(st.data())
def test_what_is_active_after_a_restart_follows_from_the_declarations(data: st.DataObject) -> None:
    """Restarts with any declarations and any changes between them, against the rule for one name at a time."""
    drawn = st.dictionaries(st.sampled_from("ab"), st.sampled_from(["x = 0", "x = 1", "x = 2"]))
    folder = MemoryFolder()
    declared: dict[str, str] = {}
    expected: dict[str, str] = {}
    for _ in range(data.draw(st.integers(1, 4))):
        now = data.draw(drawn)
        opened = journal(folder, *(subscription(name, where) for name, where in now.items()))
        for name in "ab":
            if now.get(name) != declared.get(name):
                if name in now:
                    expected[name] = now[name]
                elif expected.get(name) == declared[name]:
                    del expected[name]
        declared = now
        found = opened.active(opened.version)
        assert {name: text.sql.split("WHERE ")[1] for name, (text, _) in found.items()} == expected
        for name, where in data.draw(drawn).items():
            if name in expected:
                opened.unsubscribe(name)
                del expected[name]
            else:
                opened.subscribe(subscription(name, where))
                expected[name] = where


def test_a_removed_name_cannot_be_removed_and_a_taken_one_not_taken() -> None:
    opened = journal(MemoryFolder(), subscription("a"))
    with pytest.raises(SubscriptionError, match="'a' is already there"):
        opened.subscribe(subscription("a"))
    with pytest.raises(SubscriptionError, match="'b' is not there and cannot be removed; there are a"):
        opened.unsubscribe("b")
    with pytest.raises(SubscriptionError, match="two subscriptions are named 'a'"):
        journal(MemoryFolder(), subscription("a"), subscription("a"))


def test_another_jobs_files_are_refused() -> None:
    folder = MemoryFolder()
    journal(folder, lateness_us=0)
    with pytest.raises(CheckpointError, match="lateness_us was 0 and is 5"):
        journal(folder, lateness_us=5)
    foreign = MemoryFolder()
    foreign.write("offsets/0", b"")
    with pytest.raises(CheckpointError, match="holds offsets and no Catchment job"):
        journal(foreign)


def test_a_batch_keeps_its_first_pin() -> None:
    opened = journal(MemoryFolder())
    assert opened.pinned() == -1
    first = Pin(version=1, began_us=5, resumed_us=0)
    assert opened.pin(0, first) == first
    assert opened.pin(0, Pin(version=9, began_us=99, resumed_us=9)) == first
    assert opened.pinned() == 0


def test_only_what_may_run_again_is_kept() -> None:
    folder = MemoryFolder()
    opened = journal(folder)
    for batch in range(4):
        opened.pin(batch, Pin(1, batch, 0))
        opened.write_ledger(Ledger(batch=batch))
        folder.write(f"state/batch={batch}/part", b"")
    opened.forget(2, {"batch=0"})
    assert folder.names("ledger") == ["0000000002", "0000000003"]
    assert folder.names("state") == ["batch=0", "batch=2", "batch=3"]
    assert opened.last_ledger().batch == 3
    with pytest.raises(CheckpointError, match="no ledger of batch 1"):
        opened.ledger(1)


def test_a_version_that_is_missing_replaced_or_cut_short_is_refused_by_name() -> None:
    folder = MemoryFolder()
    running = journal(folder, subscription("a"))
    running.subscribe(subscription("b"))
    running.subscribe(subscription("c"))
    whole = dict(folder.files)
    first, second, third = (f"changes/{number:010d}" for number in (1, 2, 3))
    for files, named in (
        ({first: None}, first),
        ({second: None}, second),
        ({third: None}, third),
        ({second: whole[third]}, second),
        ({third: whole[third][:-5]}, third),
        ({"job.json": whole["job.json"][:-1]}, "job.json"),
    ):
        folder.files = {name: text for name, text in {**whole, **files}.items() if text is not None}
        with pytest.raises(CheckpointError, match=f"memory/{named} "):
            journal(folder, subscription("a"))
    other = MemoryFolder()
    journal(other, subscription("a")).subscribe(subscription("x"))
    folder.files = {**whole, second: other.files[second]}
    with pytest.raises(CheckpointError, match=f"memory/{third} does not follow"):
        journal(folder, subscription("a"))


def test_a_version_written_just_before_a_crash_is_there() -> None:
    folder = MemoryFolder()
    running = journal(folder, subscription("a"))
    record = folder.files["job.json"]
    running.subscribe(subscription("b"))
    folder.files["job.json"] = record
    assert active(journal(folder, subscription("a"))).keys() == {"a", "b"}
    empty = MemoryFolder()
    journal(empty, subscription("a"))
    del empty.files["changes/0000000001"]
    with pytest.raises(CheckpointError, match="changes/0000000001 is missing"):
        journal(empty, subscription("a"))


@pytest.mark.parametrize("old", [1, 2])
def test_a_checkpoint_of_an_older_format_is_refused_by_name(old: int) -> None:
    folder = MemoryFolder()
    content = b'{"format":%d,"settings":{},"declared":[]}' % old
    folder.write("job.json", content if old == 1 else sealed("job.json", content))
    with pytest.raises(CheckpointError, match=rf"memory/job\.json is of format {old}, and this version reads format 3"):
        journal(folder)
