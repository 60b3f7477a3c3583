"""Unusual models compute and raise as without brickd, and cause few messages.

All these models run in one process, because importing torch takes longer than running all of them. Each model has a
part with its own name.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

import pytest
from conftest import reading
from faults import Start
from recorded import sites, summaries
from test_instrument import MODEL

pytest.importorskip("torch", reason="torch is not installed: .venv/bin/pip install torch==2.13.0")

# `make` makes two equal models, and `use` calls one. The instrumented one of the two models must give the same result
# as the other. The output of a model follows its name.
CASES = """
import collections, gc, threading, weakref
torch.use_deterministic_algorithms(True)
reported = {}
def plainly(what):
    if isinstance(what, torch.Tensor):
        if what.device.type == "meta": return ["meta", list(what.shape)]
        what = what.detach()
        what = what.dequantize() if what.is_quantized else what.to_dense()
        return [str(what.dtype), list(what.shape), what.double().tolist()]
    if isinstance(what, (list, tuple)): return [plainly(each) for each in what]
    return repr(what)
def outcome(use, model):
    try: return plainly(use(model))
    except Exception as error: return [type(error).__name__, str(error), error.__context__ is None]
def same(name, make, use, **how):
    made = []
    for _ in range(2):
        torch.manual_seed(5)
        made.append(make())
    before, after = made
    torch.manual_seed(6); wanted = outcome(use, before)
    sys.stderr.write(f"== {name}\\n"); sys.stderr.flush()
    brick.instrument(after, watch_weights=False, **how)
    torch.manual_seed(6); got = outcome(use, after)
    reported[name] = wanted == got
class Of(nn.Module):
    "A model of one part, of which the test says what it does and what it is called."
    def __init__(self, name, does, part=None):
        super().__init__()
        class Part(nn.Module):
            def __init__(self): super().__init__(); self.w = nn.Parameter(torch.ones(2)); self.calls = 0
            def forward(self, *args, **keywords): self.calls += 1; return does(self, *args, **keywords)
        self.name = name
        setattr(self, name, Part() if part is None else part)
    def forward(self, *args, **keywords): return getattr(self, self.name)(*args, **keywords)
def rnn(name):
    return lambda: Of(name, None, nn.LSTM(4, 4))
"""

ODD = """
same("none", lambda: Of("none", lambda part: None), lambda m: [m(), m()])
same("shapes", lambda: Of("shapes", lambda part, x: x.repeat(part.calls)), lambda m: [m(x[0]) for _ in range(4)])
def raises(part, x):
    if part.calls % 2: raise ValueError("its own")
    return x
same("raises", lambda: Of("raises", raises), lambda m: [outcome(lambda m: m(x), m) for _ in range(4)])
same("stops", lambda: Of("stops", lambda part: next(iter(()))), lambda m: m())
same("wrong_call", lambda: Of("wrong_call", lambda part, x: x), lambda m: m())
same("scalars", lambda: Of("scalars", lambda part, x: x.sum()), lambda m: m(torch.tensor(3.0)))
same("empty", lambda: Of("empty", lambda part, x: x), lambda m: m(torch.empty(0, 4)))
same("meta", lambda: Of("meta", lambda part, x: x + 1), lambda m: m(torch.empty(3, device="meta")))
same("sparse", lambda: Of("sparse", lambda part, x: x + x), lambda m: m(torch.eye(3).to_sparse()))
same("quantized", lambda: Of("quantized", lambda part, x: x.clone()),
     lambda m: m(torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)))
same("lists", lambda: Of("lists", lambda part, x: (x, [x, {"deep": x}], None, 3)), lambda m: m(x))
same("lstm", rnn("lstm"), lambda m: m(torch.ones(2, 1, 4)))
same("in_place", lambda: Of("in_place", lambda part, x: x.add_(1)), lambda m: m(torch.ones(3)))
same("grad", lambda: Of("grad", lambda part, x: x * part.w),
     lambda m: [m(torch.ones(2)).sum().backward(), m.grad.w.grad])
def inferring(m):
    with torch.inference_mode(): return m(x), m(x).requires_grad
same("inferring", lambda: Of("inferring", lambda part, x: x * 2), inferring)
def casting(m):
    with torch.autocast("cpu", dtype=torch.bfloat16): return m(x)
same("casting", lambda: Of("casting", None, nn.Linear(16, 2)), casting)
same("lazy", lambda: Of("lazy", None, nn.LazyLinear(3)), lambda m: [m(x), m.lazy.weight])
def shared():
    one = Of("shared", None, nn.Linear(16, 16)); one.again = one.shared
    one.forward = lambda x: one.again(one.shared(x))
    return one
same("shared", shared, lambda m: m(x))
def owned():
    one = Of("owned", lambda part, x: x)
    one.owned.forward = lambda x: x + 5
    return one
same("owned", owned, lambda m: m(x))
def parametrized():
    one = Of("parametrized", None, nn.Linear(16, 2))
    nn.utils.parametrizations.weight_norm(one.parametrized)
    return one
same("parametrized", parametrized, lambda m: m(x))
def hooked():
    one = Of("hooked", lambda part, x: x + 1)
    one.hooked.register_forward_pre_hook(lambda module, given: (given[0] * 2,))
    one.hooked.register_forward_hook(lambda module, given, made: made + 7)
    return one
same("hooked", hooked, lambda m: m(x))
def threads(m):
    made = {}
    def work(n): made[n] = [m(x + n) for _ in range(20)]
    all = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for each in all: each.start()
    for each in all: each.join()
    return [made[n] for n in range(4)]
same("threads", lambda: Of("threads", lambda part, x: x * 3), threads)
same("data_parallel", lambda: nn.DataParallel(Of("data_parallel", None, nn.Linear(16, 2))), lambda m: m(x))
def mapped(m): return torch.func.vmap(m)(x), torch.func.jvp(m, (x,), (x,))
same("mapped", lambda: Of("mapped", lambda part, x: x * 3), mapped)
def twice(m): torch.utils.checkpoint.checkpoint(m, torch.ones(2), use_reentrant=False).sum().backward()
same("checkpointed", lambda: Of("checkpointed", lambda part, x: x * part.w),
     lambda m: [twice(m), m.checkpointed.w.grad])
def many(m): return [m(*range(n), **{f"k{i}": x for i in range(n)}) for n in (0, 1, 3, 4, 5, 7, 8, 9, 40)]
same("many", lambda: Of("many", lambda part, *args, **keywords: [args, sorted(keywords), x]), many)
def yields(part, x): yield x; yield x + 1
same("yields", lambda: Of("yields", yields), lambda m: list(m(x)))
class Strange(dict):
    def items(self): raise ValueError("strange")
same("unlooked", lambda: Of("unlooked", lambda part, x, more: 1 / 0), lambda m: m(x, Strange()))
same("no_modules", lambda: object(), lambda m: 1)
"""

# The number of spans of each part: one for each call, including calls that raise. The last object is not a model.
CALLS = {"none": 2, "shapes": 4, "raises": 4, "shared": 2, "threads": 80, "inferring": 2, "mapped": 2, "no_modules": 0}
CALLS |= {"many": 9, "checkpointed": 2}  # a checkpointed part runs in the forward pass, and again in the backward pass
UNREADABLE = {"meta", "sparse", "quantized"}
# These calls cannot be compared, because they return no tensor or raise.
BARE = {"none", "raises", "stops", "wrong_call", "mapped", "yields", "unlooked", "no_modules"}
# For these calls, a message says why nothing is recorded.
SAID = UNREADABLE | {"unlooked", "no_modules"}


def error_of(text: str) -> dict[str, list[str]]:
    """Return the lines below each name in the output."""
    found = {}
    for piece in text.split("== ")[1:]:
        name, *lines = piece.splitlines()
        found[name] = lines
    return found


def test_an_unusual_model_computes_and_raises_the_same(worker: Start, prefix: str) -> None:
    source = MODEL + CASES + ODD + "report(reported)\npause()\n"
    process = worker(source, BRICKD_FINGERPRINTS="all")
    reported: dict[str, bool] = process.next_report()
    process.paused()
    got = reading(prefix)
    known = {site[0] for site in sites(got) if site is not None}
    process.go()
    assert process.end() == 0, process.stderr
    assert [name for name, was in reported.items() if not was] == []
    text = error_of(process.stderr)
    assert set(text) == set(reported)
    assert {name: lines for name, lines in text.items() if len(lines) > 1} == {}
    assert all(line.startswith("brickd: ") for lines in text.values() for line in lines)
    assert {name for name, lines in text.items() if lines} <= SAID
    counted = {path[-1]: row["count"] for path, row in summaries(got).items()}
    assert {name: counted.get(name, 0) for name in reported} == {name: CALLS.get(name, 1) for name in reported}
    assert set(reported) - known <= BARE | UNREADABLE


STAYS = """
def held(text):
    'Whether it is so: 1, else 0 or what it raised.'
    try: return int(bool(eval(text, globals())))
    except Exception as error: return f"{type(error).__name__}: {error}"
brick.instrument(model)
model(x)
"""


def test_torch_transforms_an_instrumented_model_as_before(worker: Start, prefix: str) -> None:
    asked = [
        "torch.equal(torch.jit.script(model)(x), plain)",
        "torch.equal(torch.jit.trace(model, x)(x), plain)",
        "torch.equal(torch.export.export(model, (x,)).module()(x), plain)",
        "torch.equal(torch.export.export(model, (x,), strict=True).module()(x), plain)",
        "torch.equal(torch.fx.symbolic_trace(model)(x), plain)",
        "torch.equal(torch.func.functional_call(model, dict(model.named_parameters()), (x,)), plain)",
        "torch.equal(torch.compile(model, backend='eager', fullgraph=True)(x), plain)",
        "torch.equal(torch.compile(model.forward, backend='eager', fullgraph=True)(x), plain)",
        "torch.allclose(torch.func.vmap(model)(x), plain, atol=1e-6)",
        "[each.compile(backend='eager', fullgraph=True) for each in model.layers] and torch.equal(model(x), plain)",
        "model.compile(backend='eager') or torch.equal(model(x), plain)",
        "inspect.getsource(model.forward) and inspect.getdoc(model.forward) == inspect.getdoc(Model.forward)",
        "inspect.ismethod(model.forward) and model.forward.__self__ is model",
        "model.forward.__func__ is Model.forward and model.forward.__name__ == 'forward'",
        "torch.equal(model.forward(x), plain)",
    ]
    # In a program without a file, `inspect` finds no source of a class.
    source = f"""
    import tempfile, importlib.util
    file = tempfile.NamedTemporaryFile("w", suffix=".py"); file.write({MODEL!r}); file.flush()
    spec = importlib.util.spec_from_file_location("made", file.name)
    made = importlib.util.module_from_spec(spec); sys.modules["made"] = made; spec.loader.exec_module(made)
    globals().update(vars(made))
    """
    process = worker(textwrap.dedent(source) + STAYS + f"report([held(each) for each in {asked!r}])\n")
    reported: list[Any] = process.next_report()
    assert process.end() == 0, process.stderr
    assert dict(zip(asked, reported, strict=True)) == dict.fromkeys(asked, 1)
    assert re.findall("^brickd.*", process.stderr, re.MULTILINE) == []


def test_an_unreferenced_model_is_freed_at_once(worker: Start, prefix: str) -> None:
    source = """
    import gc, weakref
    gc.collect(); gc.disable()
    reported = []
    for how in (dict(), dict(watch_weights=False), dict(only="layers.*")):
        one = Model(); seen = [weakref.ref(each) for each in one.modules()]
        brick.instrument(one, **how); one(x); copy.deepcopy(one)(x)
        del one
        reported.append(sum(each() is not None for each in seen))
    one = Model(); seen = [weakref.ref(one)]
    one.compile(backend="eager"); brick.instrument(one)
    del one; gc.collect()
    reported.append(seen[0]() is not None)
    report(reported)
    """
    process = worker(MODEL + textwrap.dedent(source), BRICKD_FINGERPRINTS="all")
    reported = process.next_report()
    assert process.end() == 0, process.stderr
    assert reported == [0, 0, 0, False]
