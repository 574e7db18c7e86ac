"""Every entry of mutants.toml can be applied, and names a test that exists."""

from collections import Counter

from tests.run_mutants import fault_of, read_mutants


def test_every_mutant_changes_one_place_and_names_an_existing_test() -> None:
    assert [f"{mutant.name}: {fault}" for mutant in read_mutants() if (fault := fault_of(mutant))] == []


def test_mutant_names_are_unique() -> None:
    assert [name for name, uses in Counter(mutant.name for mutant in read_mutants()).items() if uses > 1] == []
