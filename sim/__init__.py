"""Seeded simulation: the real objects of Mainstay in virtual time, with faults, and a verdict.

`python -m sim` runs worlds; `docs/simulation.md` says how to read and replay a failure. A *world* is a set of
simulated hosts around one store. Before a run, `faults` draws what will go wrong, as data, from the seed. During the
run the hosts crash, freeze and lose calls as drawn. Every run ends healed, and must then reach a good state: nothing
that was acknowledged is lost, every job is settled once, the audit trail verifies. A seed that fails fails again, and
`shrink` drops the faults that are not needed for it.

Start from `runs.simulate`; `workers` is the world of direct workers, `supervised` has real supervisors, whose engine
processes are those of `processes`.
"""
