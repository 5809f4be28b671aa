"""A program with one place for each kind of defect."""

from harness import Scenario
from systems.probes import one_each

scenario = Scenario(
    name="probes.one_each",
    host=one_each.host,
    reference=one_each.reference,
    ranks=(1, 8),
    doc="A program with one place for each kind of defect: the self-test's.",
)
