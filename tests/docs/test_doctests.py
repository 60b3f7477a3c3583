"""The examples in docstrings run. The examples of the agent's public names really record."""

from __future__ import annotations

import doctest
import importlib
import inspect
from collections.abc import Iterator

import brick_agent
import pytest
from conftest import ROOT, reading
from recorded import Start, counts, record, spans


def documented() -> Iterator[tuple[str, object]]:
    """Return every public name, and every public method of the public types."""
    for name in brick_agent.__all__:
        thing = getattr(brick_agent, name)
        yield name, thing
        if isinstance(thing, type):
            ours = [each for each in thing.__mro__ if each.__module__.startswith("brick_agent")]
            yield from ((f"{name}.{key}", each) for of in ours for key, each in vars(of).items()
                        if inspect.isroutine(each) and not key.startswith("_"))  # fmt: skip


EXAMPLES = dict(documented())


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_public_name_is_documented_with_an_example(name: str) -> None:
    text = inspect.getdoc(EXAMPLES[name])
    assert text
    assert doctest.DocTestParser().get_examples(text)


def test_the_arguments_of_a_brick_are_explained() -> None:
    text = inspect.getdoc(brick_agent.Brick)
    assert text
    assert all(f"{keyword}: " in text for keyword in ("elements", "bytes", "step"))


@pytest.mark.ci
def test_the_examples_run_and_are_recorded(worker: Start, prefix: str) -> None:
    # The example of shutdown is last, because nothing is recorded after it.
    names = sorted(EXAMPLES, key=lambda name: name == "shutdown")
    process = worker(
        f"""
        import doctest, inspect
        runner = doctest.DocTestRunner()
        for name in {names!r}:
            thing = brick
            for part in name.split("."): thing = getattr(thing, part)
            if name == "shutdown": pause()
            test = doctest.DocTestParser().get_doctest(inspect.getdoc(thing), {{"brick": brick}}, name, None, 0)
            report([name, runner.run(test, out=lambda text: os.write(2, text.encode())).failed])
        """
    )
    for name in names[:-1]:
        assert process.next_report() == [name, 0]
    process.paused()
    got = reading(prefix)
    assert spans(got)["begun"] == spans(got)["summarized"]
    recorded = {name for path in counts(got) for name in path}
    assert {"rms_norm", "copy", "moe_gemm", "prefill", "decode", "attention[3]", "tokenize", "stream"} <= recorded
    process.go()
    assert process.next_report() == ["shutdown", 0]
    assert process.end() == 0


@pytest.mark.ci
def test_the_example_of_the_package_is_recorded(worker: Start, prefix: str) -> None:
    """Runs the example in the docstring of the package, in which `...` stands for code."""
    assert brick_agent.__doc__
    lines = [line[4:] for line in brick_agent.__doc__.splitlines() if line.startswith("    ")]
    got = record(worker, prefix, "\n".join(lines) + '\ntokenize("text")')
    assert spans(got) == {"begun": 4, "summarized": 4}


def modules() -> list[str]:
    """Return the modules of brickd that have examples."""
    files = [path for path in sorted((ROOT / "brickd").rglob("*.py")) if ">>> " in path.read_text()]
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files]


@pytest.mark.parametrize("name", modules())
def test_the_examples_of_a_brickd_module_pass(name: str) -> None:
    failed, attempted = doctest.testmod(importlib.import_module(name))
    assert (failed, attempted > 0) == (0, True)
