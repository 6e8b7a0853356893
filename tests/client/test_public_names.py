"""The names that users may rely on, pinned: one is added on purpose, and none goes unseen."""

from __future__ import annotations

import pytest

import replay_server

NAMES = {
    "replay_server": """
        Autoreset Batch Batches Client ClosedError Column ConfigError EngineError
        Fifo ForkedError FrameStack Full Insecure ItemsFailed Keys LimiterBlocked MinSize NStep
        NoRoom NotAuthorised NothingDrawable Offsets OverBudget Plan Prioritized Ready
        ReplayError Row Rows RowsDropped SamplesPerInsert Sequence Server ServerOptions
        ServerRestarted SessionExpired ShortBatch Spec SpecError SpecMismatch StaleEpoch
        Table TableEmptied Timeout Transitions TransportError Uniform UnknownPlan
        UnknownTable UpdateResult WeightsGone Writer mode_of n_step_targets priority_from_td
        spec_from stacks_from_frames
    """,
    "Client": """
        batches can_sample close closed counters extend facts flush get incarnation landing
        limits ping publish_weights pull_weights reset rows sample size stats table tables
        update_priorities weights_version writer
    """,
    "Writer": """
        add add_batch add_step append close closed create create_items flush ledger restart send
        state weights_version
    """,
    "Server": """
        address attached changes close closed counters incarnation lost memory
        remark stats turn weights_version
    """,
    "Batch": """
        arrived as_dict copied epoch layout plan table transitions
    """,
    "Batches": """
        close get
    """,
    "Table": """
        capacity streams window writers
    """,
    "Spec": """
        flatten from_json group names pack padding record_dtype to_json tuples unflatten
        unpack
    """,
    "Autoreset": """
        cut restart rows
    """,
    "NStep": """
        stack to_json
    """,
    "SamplesPerInsert": """
        error_buffer min_size
    """,
    "Ready": """
        ahead steps streams where
    """,
    "Transitions": """

    """,
    "UpdateResult": """
        applied stale unknown
    """,
}


@pytest.mark.parametrize("of", NAMES)
def test_the_public_names_are_these(of):
    """Given the package, or a class of it. Expect the names above, and no other without _."""
    if of == "replay_server":
        assert replay_server.__all__ == NAMES[of].split()
        return
    there = [name for name in dir(getattr(replay_server, of)) if not name.startswith("_")]
    assert sorted(there) == NAMES[of].split()
