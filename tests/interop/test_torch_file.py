"""`pytorch_model.bin` that takes much memory, or holds other than plain tensors: refused by name, in a line."""

import _codecs
import io
import resource
import zipfile

import numpy as np
import pytest
import torch

from bert_jax.errors import UserError
from bert_jax.interop.huggingface.torch_file import read_torch

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR", "ignore:torch.quantize_per_tensor")


class Call:
    """A pickle that calls a function which torch's loader of weights allows."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


ONE, FEW = torch.ones(1), torch.arange(3.0)
TENSORS = {
    "expanded": (lambda: ONE.expand(10**9), r"of shape \[1000000000\] has more numbers than the file holds"),
    "expanded half": (lambda: ONE.half().expand(10**9, 1), r"of shape \[1000000000, 1\] has more numbers than"),
    "expanded numbers of positions": (lambda: ONE.long().expand(10**9), "has more numbers than the file holds"),
    "overlapping": (lambda: torch.arange(2000.0).as_strided((1000, 1000), (1, 1)), "has more numbers than the file"),
    "float8": (lambda: FEW.to(torch.float8_e4m3fn), r"needs torch\._utils\._rebuild_tensor_v3"),
    "sparse": (lambda: torch.eye(3).to_sparse(), r"needs torch\._utils\._rebuild_sparse_tensor"),
    "sparse rows": (lambda: torch.eye(3).to_sparse_csr(), r"needs torch\._utils\._rebuild_sparse_tensor"),
    "meta": (lambda: torch.ones(3, device="meta"), r"needs torch\._utils\._rebuild_meta_tensor_no_storage"),
    "quantized": (lambda: torch.quantize_per_tensor(FEW, 1.0, 0, torch.qint8), r"_utils\._rebuild_qtensor"),
    "negative": (lambda: torch._neg_view(FEW), "is stored negated or conjugated"),
    "conjugate": (lambda: FEW.to(torch.complex64).conj(), "is stored negated or conjugated"),
    "memory of a call": (lambda: Call(bytearray, 10**9), r"needs __builtin__\.bytearray"),
    "doubling calls": (lambda: Call(_codecs.encode, b"x" * 99, "hex_codec"), r"needs _codecs\.encode"),
}


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_of_an_unsupported_kind_is_refused(tmp_path, name, legacy):
    make, words = TENSORS[name]
    path = tmp_path / "pytorch_model.bin"
    torch.save({"first": FEW, "a.weight": make()}, path, _use_new_zipfile_serialization=not legacy)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=rf"pytorch_model\.bin.*tensor 'a\.weight' .*{words}") as refusal:
        read_torch(path)
    assert "\n" not in str(refusal.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000, "KiB taken for what is not there"


def test_many_names_of_the_same_numbers_are_refused(tmp_path):
    path, shared = tmp_path / "pytorch_model.bin", torch.ones(10**5)
    torch.save({f"copy{i}": shared for i in range(100)}, path)
    with pytest.raises(UserError, match=r"up to tensor 'copy\d+', its tensors take [\d,]+ bytes, more than 8 times"):
        read_torch(path)


def rewritten(path, change, compression=zipfile.ZIP_STORED):
    """The members of a file of torch in a new archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(buffer, "w", compression) as new:
        for member in old.infolist():
            new.writestr(member.filename, change(member.filename, old.read(member)))
    path.write_bytes(buffer.getvalue())


def test_an_archive_that_lies_is_refused(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    torch.save({"a": torch.arange(100.0)}, path)
    rewritten(path, lambda name, data: data.replace(b"Kd", b"J\0\0\0\x10"))  # 100 -> 2**28 numbers
    with pytest.raises(UserError, match="is refused: torch finds more in it than weights, or damage"):
        read_torch(path)
    torch.save({"a": torch.zeros(10**6)}, path)
    rewritten(path, lambda name, data: data, zipfile.ZIP_DEFLATED)
    with pytest.raises(UserError, match=r"data\.pkl in it is compressed, which torch never writes"):
        read_torch(path)


def test_a_pickle_before_an_archive_is_searched_too(tmp_path):
    """torch takes a file for an archive by its first bytes, Python by its last."""
    path = tmp_path / "pytorch_model.bin"
    torch.save({"a": FEW}, path)
    archive = path.read_bytes()
    torch.save({"a": Call(bytearray, 10**9)}, path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes() + archive)
    with pytest.raises(UserError, match=r"tensor 'a' needs __builtin__\.bytearray"):
        read_torch(path)


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
def test_plain_tensors_of_every_layout_are_read(tmp_path, legacy):
    path, tied = tmp_path / "pytorch_model.bin", torch.randn(20, 4)
    tensors = {
        "parameter": torch.nn.Parameter(torch.randn(2, 3)),
        "turned": torch.randn(4, 5).t(),
        "slice": torch.randn(9, 4)[2:5, ::2],
        "half": torch.randn(3).half(),
        "bfloat16": torch.randn(3).bfloat16(),
        "numbers": torch.arange(5)[None],
        "scalar": torch.tensor(2.0),
        "empty": torch.zeros(0, 3),
        "tied": tied,
        "copy": tied,
    }
    torch.save(tensors, path, _use_new_zipfile_serialization=not legacy)
    found = read_torch(path)
    assert found.keys() == tensors.keys()
    for name, x in tensors.items():
        np.testing.assert_array_equal(found[name], x.detach().to(torch.float64).numpy())
