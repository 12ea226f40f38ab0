"""JUnit XML, as Jenkins and GitLab read it.

There is no standard. Elements and attributes follow the schema of Jenkins' xUnit plug-in
(junit-10.xsd), in an order that older schemas accept too: properties, cases, output.
"""

import xml.etree.ElementTree as ET  # used only for writing

from labctl.errors import printable
from labctl.report.ci.cases import Case, Outcome, Suite


def junit_xml(suite: Suite, output: str = "") -> str:
    """Return a suite as one document, with an output for people.

    Characters not allowed in XML 1.0 (control characters, lone surrogates) are written as
    ``\\x1b``.
    """
    counts = {
        "tests": str(len(suite.cases)),
        "failures": str(suite.number(Outcome.FAILED)),
        "errors": str(suite.number(Outcome.ERROR)),
        "time": f"{sum(case.seconds for case in suite.cases):.3f}",
    }
    root = ET.Element("testsuites", counts)
    attributes = {"name": suite.name, **counts, "skipped": str(suite.number(Outcome.SKIPPED))}
    if suite.started is not None:
        attributes["timestamp"] = suite.started.isoformat(timespec="seconds")
    if suite.host:
        attributes["hostname"] = suite.host
    element = _element(root, "testsuite", attributes)
    known = {**({"verdict": suite.verdict} if suite.verdict else {}), **suite.properties}
    if known:
        properties = ET.SubElement(element, "properties")
        for name, value in known.items():
            _element(properties, "property", {"name": name, "value": value})
    for case in suite.cases:
        _add(element, case)
    if output:
        _element(element, "system-out", {}, output)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def _add(suite: ET.Element, case: Case) -> None:
    attributes = {"name": case.name, "classname": case.group, "time": f"{case.seconds:.3f}"}
    element = _element(suite, "testcase", attributes)
    if case.outcome is Outcome.PASSED:
        _element(element, "system-out", {}, case.message)
        return
    why = {"type": case.kind, "message": case.message}
    text = "\n".join(filter(None, (case.message, case.details)))
    _element(element, str(case.outcome), why, text)


def _element(
    parent: ET.Element, name: str, attributes: dict[str, str], text: str | None = None
) -> ET.Element:
    """Add an element; its texts get only characters allowed in XML."""
    clean = {key: printable(value) for key, value in attributes.items()}
    element = ET.SubElement(parent, name, clean)
    element.text = None if text is None else printable(text)
    return element
