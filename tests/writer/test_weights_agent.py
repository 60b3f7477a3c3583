"""Weights: all tensors of any mapping or module are recorded under their names."""

from __future__ import annotations

import pytest
from faults import Start
from watched_weights import left_by

# ---- records --------------------------------------------------------------------------------------------


def test_all_tensors_of_a_model_are_recorded_by_their_names(worker: Start, prefix: str) -> None:
    got, records, results, reported = left_by(
        worker,
        prefix,
        """
        big = np.arange(1 << 20, dtype="f")
        tensors = {
            "layers.0.w": array("f", [1, 2]), "layers.1.w": array("f", [3, 4]),
            "layers.1.experts.7.up": np.eye(5)[::2, ::-1], "embed_tokens.weight": big,
            "lm_head.weight": np.float32(3), "empty": np.zeros((0, 3)), "bytes": b"abc",
        }
        brick.weights(tensors)
        reported = [checksum(each) for each in tensors.values()]
        """,
    )
    assert [(*each[:3], each.generation) for each in records] == [
        ("layers.*.w", 0, None, 1),
        ("layers.*.w", 1, None, 1),
        ("layers.*.experts.*.up", 1, 7, 1),
        ("embed_tokens.weight", -1, None, 1),
        ("lm_head.weight", -1, None, 1),
        ("empty", -1, None, 1),
        ("bytes", -1, None, 1),
    ]
    assert [each.checksum for each in records] == results
    assert all(each.counted for each in records)
    assert (got.process["weights"], got.process["scans"], got.process["tensors_refused"]) == (7, 1, 0)
    assert reported == ""


@pytest.mark.ci
def test_weights_wait_for_a_temporarily_unavailable_key(worker: Start, prefix: str) -> None:
    got, records, reported, _ = left_by(
        worker,
        prefix,
        """
        import resource
        brick.init()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        tensors = model(3)
        brick.weights(tensors)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        steps(lambda: scans() == 1)
        reported = [checksum(each) for each in tensors.values()]
        """,
    )
    assert [each.checksum for each in records] == reported
    assert (got.process["weights"], got.process["tensors_refused"]) == (3, 0)


def test_an_ml_dtypes_bfloat16_weight_is_read(worker: Start, prefix: str) -> None:
    got, records, reported, _ = left_by(
        worker,
        prefix,
        """
        import ml_dtypes
        half = np.arange(12).astype(ml_dtypes.bfloat16)
        brick.weights({"half": half})
        reported = checksum(half)
        """,
    )
    assert [each.checksum for each in records] == [reported]
    assert got.process["tensors_refused"] == 0


def test_a_weight_named_other_is_recorded_like_any_other(worker: Start, prefix: str) -> None:
    """A weight whose name has no room in the table of names is recorded, but has no site."""
    got, records, reported, _ = left_by(
        worker,
        prefix,
        """
        brick.weights({"other": array("f", [1, 2]), "layers.3.other": b"abc"})
        reported = [checksum(each) for each in (array("f", [1, 2]), b"abc")]
        """,
    )
    assert [(*each[:3], each.checksum) for each in records] == [
        ("other", -1, None, reported[0]),
        ("layers.*.other", 3, None, reported[1]),
    ]
    assert got.process["sites_refused"] == 0


def test_a_disabled_kernel_and_a_weight_of_its_name_are_two_sites(worker: Start, prefix: str) -> None:
    got, records, _, _ = left_by(
        worker,
        prefix,
        """
        brick.checksum("token_embedding", b"what a customer wrote")
        brick.weights({"token_embedding": b"a weight"})
        brick.checksum("token_embedding", b"what a customer wrote")
        """,
    )
    assert [each.name for each in records] == ["token_embedding"]
    assert got.process["sites"] == 2


def test_a_generation_is_given_or_counted(worker: Start, prefix: str) -> None:
    got, records, _, _ = left_by(
        worker,
        prefix,
        """
        brick.weights({"w": b"1"})
        brick.weights({"w": b"2"}, generation=70)
        brick.weights({"w": b"3"}, generation=0)
        brick.weights({"w": b"4"})
        """,
    )
    assert [each.generation for each in records] == [1, 70, 0, 4]
    assert [each.counted for each in records] == [True, False, False, True]
    assert (got.process["weights"], got.process["scans"]) == (1, 4)


# ---- modules -----------------------------------------------------------------------------------------------------

# Imitations of torch's classes with the attributes that the agent reads. A parameter requires gradients; only its
# detached tensor can be exported.
MODULE = """
class Parameter:
    requires_grad = True
    def __init__(self, numbers): self.numbers = np.asarray(numbers, "f")
    def detach(self): return self.numbers
    def __dlpack__(self, **_): raise BufferError("requires grad")
    __dlpack_device__ = __dlpack__
class Elsewhere(Parameter):
    def detach(self): return self
    def __dlpack_device__(self): return (2, 0)
class Module:
    def __init__(self, parameters, buffers=()): self.parameters, self.buffers = dict(parameters), dict(buffers)
    def named_parameters(self): return iter(self.parameters.items())
    def named_buffers(self): yield from self.buffers.items()
"""


def test_a_module_provides_its_parameters_and_buffers(worker: Start, prefix: str) -> None:
    _, records, results, reported = left_by(
        worker,
        prefix,
        MODULE
        + """
model = Module({"layers.0.w": Parameter([1]), "layers.1.w": Parameter([2])}, {"inv_freq": np.arange(3.0)})
brick.weights(model)
reported = [checksum(each) for each in (np.float32([1]), np.float32([2]), np.arange(3.0))]
""",
    )
    assert [each[:2] for each in records] == [("layers.*.w", 0), ("layers.*.w", 1), ("inv_freq", -1)]
    assert [each.checksum for each in records] == results
    assert reported == ""


def test_a_cache_buffer_is_not_a_weight(worker: Start, prefix: str) -> None:
    _, records, _, reported = left_by(
        worker,
        prefix,
        MODULE
        + """
caches = ("cache", "layers.0.k_cache", "kv.CACHE_0", "layers.1.cache2")
others = ("cos_cached", "layers.0.cache.scale", "cachet")
brick.weights(Module({"cache": Parameter([1])}, {name: np.arange(3.0) for name in (*caches, *others)}))
""",
    )
    read = [("cache", -1), ("cos_cached", -1), ("layers.*.cache.scale", 0), ("cachet", -1)]
    assert [each[:2] for each in records] == read
    assert reported == ""


def test_a_module_is_not_kept_alive_and_freed_tensors_are_not_watched(worker: Start, prefix: str) -> None:
    got, _, reported, _ = left_by(
        worker,
        prefix,
        MODULE
        + """
import weakref
kept = Parameter([2])
model = Module({"a": Parameter([1]), "b": kept})
brick.weights(model, rescan_s=1e-6, share=1)
alive = weakref.ref(model), weakref.ref(model.parameters["a"])
reported = [watched()]
del model
reported += [each() is None for each in alive]
steps(lambda: scans() >= 3)
reported += [watched()]
""",
    )
    assert reported == [2, True, True, 1]
    assert got.process["tensors_refused"] == 0


# A module that shows which parts and tensors it has, with the names of torch's own modules.
PARTS = (
    MODULE
    + """
import weakref
class Part(Module):
    def __init__(self, parts=(), **tensors):
        self.parts, self._parameters, self._buffers = dict(parts), tensors, {}
    def named_modules(self): return [("", self), *self.parts.items()]
    def named_parameters(self):
        for prefix, part in self.named_modules():
            for name, one in part._parameters.items():
                yield f"{prefix}.{name}".lstrip("."), one
    def named_buffers(self): return ()
"""
)


def test_a_tensor_replaced_in_its_module_is_watched_there(worker: Start, prefix: str) -> None:
    """torch can swap the contents of two tensors only if neither has weak references. Otherwise, it replaces a tensor
    when a model is loaded or converted.
    """
    got, records, results, reported = left_by(
        worker,
        prefix,
        PARTS
        + """
down = Part(weight=Parameter([1]), bias=Parameter([2]), gone=Parameter([3]))
model = Part({"layers.0.down": down}, scale=Parameter([4]), nothing=None)
brick.weights(model, rescan_s=1e-6, share=1)
kept = [down._parameters["weight"], model._parameters["scale"]]
reported = [watched(), [weakref.getweakrefcount(each) for each in kept]]
down._parameters["weight"] = Parameter([5])
del down._parameters["gone"]
before = scans()
steps(lambda: scans() >= before + 2)
reported += [watched()]
alive = weakref.ref(model), weakref.ref(down)
del model, down
reported += [[each() for each in alive], checksum(np.float32([1])), checksum(np.float32([5]))]
""",
    )
    assert results[:4] == [4, [0, 0], 3, [None, None]]
    weight = [each.checksum for each in records if each.name == "layers.*.down.weight"]
    assert (weight[0], {*weight}) == (results[4], {results[4], results[5]})
    assert (got.process["tensors_refused"], reported) == (0, "")


def test_a_tensor_not_found_in_its_module_is_watched_directly(worker: Start, prefix: str) -> None:
    _, records, results, reported = left_by(
        worker,
        prefix,
        PARTS
        + """
class Renamed(Part):
    def named_parameters(self): return [("up", self._parameters["weight"]), ("a.b", two), ("weight", b"3")]
class Mute(Renamed):
    def named_modules(self): raise RuntimeError("none")
class Wrong(Renamed):
    _parameters = 3
    def __init__(self, tensor): self.tensor = tensor
    def named_modules(self): return [("", self), ("a", None)]
    def named_parameters(self): return [("up", self.tensor), ("a.b", two), ("weight", b"3")]
w, two = Parameter([1]), np.float32([2])
models = [Renamed(weight=w), Mute(weight=w), Wrong(w)]
for one in models:
    brick.weights(one)
reported = [checksum(each) for each in (np.float32([1]), two, b"3")] * 3
""",
    )
    assert [each.checksum for each in records] == results
    assert reported == ""


def test_unreadable_tensors_are_counted_and_the_first_is_named_once(worker: Start, prefix: str) -> None:
    got, records, _, reported = left_by(
        worker,
        prefix,
        MODULE
        + """
class Raising(Parameter):
    def detach(self): raise RuntimeError("meta")
class Broken(Module):
    def named_buffers(self):
        yield from super().named_buffers()
        raise RuntimeError("no more")
a, b, c, d = Elsewhere([1]), Parameter([2]), Raising([3]), np.ones(2)
brick.weights(Broken({"a\\n\\x1b[31m": a, "b": b, "c": c}, {"d": d}))
brick.weights({"x": a, "y": None, "z": np.array(["text"])})
""",
    )
    assert [each.name for each in records] == ["b", "d"]
    assert (got.process["weights"], got.process["tensors_refused"]) == (3, 6)
    warned_once = "brickd: 3 of 5 weights have no fingerprint; the first, 'a\\n\\x1b[31m': "
    assert reported.startswith(
        warned_once + '"brick_agent: a tensor on device 2 of DLPack (CUDA), expected one in this host'
    )
    assert reported.count("\n") == 1


# ---- arguments ---------------------------------------------------------------------------------------------------

HOSTILE = """
class Raises(dict):
    def __init__(self, error, *names): super().__init__((name, b"") for name in names); self.error = error
    def __getitem__(self, name): raise self.error
class Nothing:
    def __getattr__(self, name): raise RuntimeError(name)
    def __repr__(self): raise RuntimeError("repr")
class Module:
    def __init__(self, found): self.found = found
    def named_parameters(self): return self.found
    def named_buffers(self): return ()
class Restless(dict):
    def __getitem__(self, name):
        brick.weights({"deeper": b""})
        with brick.step(None): pass
        return b"x"
strange = [None, 3, "text", [], object(), Nothing(), Raises(RuntimeError(), "a"), Raises(MemoryError(), "b")]
strange += [Module(found) for found in (None, 3, [None], [("a",)], [(None, b"")], [("a", b"", 1)], ["ab"])]
strange += [{None: b"", 3: b"", ("x",): b"", "\\ud800": b"", "": b"", "x" * 5000: b"", "a.b" * 3000: b""}]
strange += [{"\\0\\n": b""}]
strange += [Restless(a=b"", b=b"")]
"""


def test_no_argument_raises_an_exception(worker: Start, prefix: str) -> None:
    got, _, _, reported = left_by(
        worker,
        prefix,
        HOSTILE
        + """
for one in strange:
    assert brick.weights(one, rescan_s=1e-9, share=1) is None
    steps(iter([False] * 500 + [True]).__next__)
for word in ("rescan_s", "generation", "share"):
    for one in (*strange[:7], -1, 0, float("nan"), float("inf"), 2**70):
        assert brick.weights({"a": b""}, **{word: one}) is None
""",
    )
    ((_, lane, _),) = got.lanes
    assert lane["event_attempts"] == lane["event_records"] + sum(lane["event_dropped"])
    assert got.process["tensors_refused"] > 0
    assert reported.count("\n") == 5, reported
    kinds = (
        "no weights are watched",
        "1 of 1 weights have no fingerprint",
        "rescan_s must",
        "a generation must",
        "share must",
    )
    assert all(reported.count(f"brickd: {kind}") == 1 for kind in kinds), "each line is written once"


@pytest.mark.parametrize(
    "call",
    [
        "brick.weights([1])",
        "brick.weights({'a': object()})",
        "brick.weights({'a': b''}, rescan_s=0)",
        "brick.weights({'a': b''}, share=1.5)",
        "brick.weights({'a': b''}, generation=1.5)",
    ],
)
def test_strict_mode_raises_mistakes(worker: Start, call: str) -> None:
    process = worker(f"try: {call}\nexcept (TypeError, ValueError, AttributeError): pause()", BRICKD_STRICT="1")
    process.paused()
    process.go()
    assert process.end() == 0


def test_an_interrupt_passes_and_the_scan_continues_after_it(worker: Start, prefix: str) -> None:
    _, records, reported, _ = left_by(
        worker,
        prefix,
        """
        class Interrupted(dict):
            now = True
            def __getitem__(self, name):
                if self.now and name == "b": raise KeyboardInterrupt
                return super().__getitem__(name)
        tensors = Interrupted(a=b"1", b=b"2", c=b"3")
        reported = []
        try: brick.weights(tensors, share=1)
        except KeyboardInterrupt: reported.append(scans())
        try: steps(lambda: False)
        except KeyboardInterrupt: reported.append(scans())
        tensors.now = False
        steps(lambda: scans() == 1)
        """,
    )
    assert reported == [0, 0]
    assert [each.name for each in records] == ["a", "b", "c"]


def test_a_signal_that_interrupts_a_load_leaves_it_to_the_steps(worker: Start, prefix: str) -> None:
    _, records, reported, _ = left_by(
        worker,
        prefix,
        MODULE
        + """
import functools, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
class Signalling:  # in C alone: Python does not look for signals on the way
    requires_grad, __dlpack__ = True, None
    detach = functools.partial(os.kill, os.getpid(), signal.SIGINT)
first, second = Signalling(), np.ones(1)
try: brick.weights(Module({"first": first, "second": second}), share=1)
except KeyboardInterrupt: reported = scans()
first.detach = lambda: np.zeros(1)
steps(lambda: scans() == 1)
""",
    )
    assert reported == 0
    assert [each.name for each in records] == ["first", "second"]
