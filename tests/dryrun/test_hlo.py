"""Costs of HLO texts: hand-written programs against counts by hand, compiled programs against closed forms."""

import jax
import jax.numpy as jnp
import pytest

from bert_jax.dryrun.hlo import parse_hlo
from bert_jax.dryrun.hlo_cost import Collective, program_cost

# A counter, a sum, and in each of 12 rounds an 8 x 16 x 32 product, whose second operand is sliced from a stack of 12.
LOOP = """HloModule loop

%product (p.0: f32[8,16], p.1: f32[12,16,32], p.2: s32[]) -> f32[8,32] {
  %p.0 = f32[8,16]{1,0} parameter(0)
  %p.1 = f32[12,16,32]{2,1,0} parameter(1)
  %p.2 = s32[] parameter(2)
  %zero = s32[] constant(0)
  %slice = f32[1,16,32]{2,1,0} dynamic-slice(%p.1, %p.2, %zero, %zero), dynamic_slice_sizes={1,16,32}
  %flat = f32[16,32]{1,0} bitcast(%slice)
  ROOT %dot = f32[8,32]{1,0} dot(%p.0, %flat), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%body (state: (s32[], f32[8,16], f32[12,16,32], f32[8,32])) -> (s32[], f32[8,16], f32[12,16,32], f32[8,32]) {
  %state = (s32[], f32[8,16]{1,0}, f32[12,16,32]{2,1,0}, /*index=3*/f32[8,32]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %x = f32[8,16]{1,0} get-tuple-element(%state), index=1
  %ws = f32[12,16,32]{2,1,0} get-tuple-element(%state), index=2
  %sum = f32[8,32]{1,0} get-tuple-element(%state), index=3
  %y = f32[8,32]{1,0} fusion(%x, %ws, %i), kind=kOutput, calls=%product
  %more = f32[8,32]{1,0} add(%sum, %y)
  ROOT %out = (s32[], f32[8,16]{1,0}, f32[12,16,32]{2,1,0}, f32[8,32]{1,0}) tuple(%next, %x, %ws, %more)
}

%condition (state.1: (s32[], f32[8,16], f32[12,16,32], f32[8,32])) -> pred[] {
  %state.1 = (s32[], f32[8,16]{1,0}, f32[12,16,32]{2,1,0}, f32[8,32]{1,0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%state.1), index=0
  %end = s32[] constant(12)
  ROOT %less = pred[] compare(%i.1, %end), direction=LT
}

ENTRY %main (x: f32[8,16], ws: f32[12,16,32]) -> f32[8,32] {
  %x.1 = f32[8,16]{1,0} parameter(0)
  %ws.1 = f32[12,16,32]{2,1,0} parameter(1)
  %start = s32[] constant(0)
  %nothing = f32[8,32]{1,0} constant({...})
  %first = (s32[], f32[8,16]{1,0}, f32[12,16,32]{2,1,0}, f32[8,32]{1,0}) tuple(%start, %x.1, %ws.1, %nothing)
  %loop = (s32[], f32[8,16]{1,0}, f32[12,16,32]{2,1,0}, f32[8,32]{1,0}) while(%first), condition=%condition, body=%body
  ROOT %result = f32[8,32]{1,0} get-tuple-element(%loop), index=3
}
"""


def test_a_loop_counts_as_often_as_it_runs() -> None:
    found, once = program_cost(LOOP), program_cost(LOOP, multiply_loops=False)
    product, adds, compare = 2 * 8 * 16 * 32, 8 * 32 + 1, 1
    assert once.flops == product + adds + compare
    assert found.flops == 12 * once.flops
    # The product reads x, one slice of the stack and the counter; the sum reads two arrays; each writes one.
    fusion, add = 4 * (8 * 16 + 16 * 32 + 1 + 8 * 32), 4 * 3 * 8 * 32
    counter, comparison = 4 * 3, 4 + 4 + 1
    assert found.bytes == found.hbm_bytes == 12 * (fusion + add + counter + comparison)
    assert not found.collectives


def test_a_slice_of_an_elementwise_result_reads_only_its_part_of_the_input() -> None:
    text = """HloModule cuts

%parts (p.0: f32[12,16,32], p.1: f32[2,24,32]) -> (bf16[2,16,32], f32[8,32], bf16[12,16,32]) {
  %p.0 = f32[12,16,32]{2,1,0} parameter(0)
  %narrow = bf16[12,16,32]{2,1,0} convert(%p.0)
  %cut = bf16[1,16,32]{2,1,0} slice(%narrow), slice={[0:1], [0:16], [0:32]}
  %flat = bf16[16,32]{1,0} bitcast(%cut)
  %twice = bf16[2,16,32]{2,1,0} broadcast(%flat), dimensions={1,2}
  %p.1 = f32[2,24,32]{2,1,0} parameter(1)
  %zero = f32[] constant(0)
  %sum = f32[24,32]{1,0} reduce(%p.1, %zero), dimensions={0}, to_apply=%add
  %third = f32[8,32]{1,0} slice(%sum), slice={[8:16], [0:32]}
  ROOT %both = (bf16[2,16,32]{2,1,0}, f32[8,32]{1,0}) tuple(%twice, %third)
}

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

ENTRY %main (x: f32[12,16,32], y: f32[2,24,32]) -> (bf16[2,16,32], f32[8,32]) {
  %x = f32[12,16,32]{2,1,0} parameter(0)
  %y = f32[2,24,32]{2,1,0} parameter(1)
  ROOT %found = (bf16[2,16,32]{2,1,0}, f32[8,32]{1,0}) fusion(%x, %y), kind=kLoop, calls=%parts
}
"""
    one_of_12, third_of_both, written = 4 * 16 * 32, 4 * 2 * 8 * 32, 2 * 2 * 16 * 32 + 4 * 8 * 32
    assert program_cost(text).bytes == one_of_12 + third_of_both + written
    whole = text.replace("tuple(%twice, %third)", "tuple(%twice, %third, %narrow)")
    whole = whole.replace("(bf16[2,16,32]{2,1,0}, f32[8,32]{1,0})", "(bf16[2,16,32], f32[8,32], bf16[12,16,32])")
    assert program_cost(whole).bytes == (4 + 2) * 12 * 16 * 32 + third_of_both + written


def test_a_cut_out_of_other_tiles_reads_that_part_alone() -> None:
    """As libtpu writes it for a TPU7x, whose arrays have tiles of 16 rows in HBM and of 8 in a product."""
    text = """HloModule tiles

%copy_fusion (input: bf16[12,16,128]) -> bf16[12,16,128] {
  %input = bf16[12,16,128]{2,1,0:T(16,128)(2,1)} parameter(0)
  ROOT %copy = bf16[12,16,128]{2,1,0:T(8,128)(2,1)} copy(%input)
}

%part (p: bf16[12,16,128], i: s32[]) -> bf16[1,16,128] {
  %p = bf16[12,16,128]{2,1,0:T(16,128)(2,1)} parameter(0)
  %i = s32[]{:S(6)} parameter(1)
  %other = bf16[12,16,128]{2,1,0:T(8,128)(2,1)} fusion(%p), kind=kLoop, calls=%copy_fusion
  %zero = s32[] constant(0)
  ROOT %cut = bf16[1,16,128]{2,1,0} dynamic-slice(%other, %i, %zero, %zero), dynamic_slice_sizes={1,16,128}
}

ENTRY %main (p: bf16[12,16,128], i: s32[]) -> bf16[1,16,128] {
  %p = bf16[12,16,128]{2,1,0:T(16,128)(2,1)} parameter(0)
  %i = s32[]{:S(6)} parameter(1)
  ROOT %found = bf16[1,16,128]{2,1,0} fusion(%p, %i), kind=kLoop, calls=%part
}
"""
    assert program_cost(text).hbm_bytes == 2 * (2 * 16 * 128), "read and written"
    computes = text.replace(
        "ROOT %copy = bf16[12,16,128]{2,1,0:T(8,128)(2,1)} copy(%input)",
        """\
%sum = bf16[12,16,128]{2,1,0:T(8,128)(2,1)} reverse(%input), dimensions={0}
  ROOT %copy = bf16[12,16,128]{2,1,0:T(8,128)(2,1)} copy(%sum)""",
    )
    assert program_cost(computes).hbm_bytes == 13 * (2 * 16 * 128), "any element may need any other"


def test_the_compilers_note_of_a_trip_count_is_preferred() -> None:
    noted = LOOP.replace("body=%body", 'body=%body, backend_config={"known_trip_count":{"n":"5"}}')
    assert program_cost(noted).flops == 5 * program_cost(LOOP, multiply_loops=False).flops


def test_unknown_trip_counts_and_other_text_are_refused() -> None:
    with pytest.raises(ValueError, match="does not show how often it runs"):
        program_cost(LOOP.replace("direction=LT", "direction=NE"))
    with pytest.raises(ValueError, match="ENTRY"):
        parse_hlo("no program")


def entry(*lines: str) -> str:
    return "ENTRY %main () -> f32[] {\n" + "\n".join(f"  {line}" for line in lines) + "\n}\n"


@pytest.mark.parametrize(
    ("attributes", "shapes", "multiply_adds"),
    [
        # a plain product of 64 x 768 with 768 x 2
        ("dim_labels=bf_io->bf", ("64,768", "768,2", "64,2"), 64 * 768 * 2),
        # a batched product as the TPU writes it: one dilated window position a batch entry is no hole
        (
            "window={size=64x12 stride=63x11 lhs_dilate=64x12}, dim_labels=01bf_01oi->01bf",
            ("64,12,128,64", "64,12,128,64", "64,12,128,128"),
            64 * 12 * 128 * 128 * 64,
        ),
        # heads as a window: 11 of 12 positions fall into the padding
        (
            "window={size=1x12 pad=0_0x11_11 rhs_reversal=0x1}, dim_labels=0bf1_1oi0->0b1f",
            ("64,128,768,1", "12,64,768,1", "64,128,12,64"),
            64 * 128 * 768 * 12 * 64,
        ),
        # 3 x 3 with stride 2 over 9 x 9, no padding
        ("window={size=3x3 stride=2x2}, dim_labels=b01f_01io->b01f", ("1,9,9,4", "3,3,4,8", "1,4,4,8"), 16 * 9 * 4 * 8),
    ],
)
def test_convolutions(attributes: str, shapes: tuple[str, str, str], multiply_adds: int) -> None:
    lhs, rhs, out = shapes
    text = entry(
        f"%a = f32[{lhs}] parameter(0)",
        f"%b = f32[{rhs}] parameter(1)",
        f"ROOT %c = f32[{out}] convolution(%a, %b), {attributes}",
    )
    assert program_cost(text).flops == 2 * multiply_adds


def test_collectives_of_every_form() -> None:
    text = entry(
        "%a = f32[100]{0:T(128)} parameter(0)",
        "%b = bf16[10,4]{1,0:T(8,128)(2,1)S(1)} parameter(1)",
        "%r = (f32[100]{0:T(128)}, /*index=1*/bf16[10,4]{1,0}) all-reduce(%a, %b), replica_groups={{0,1,2,3}}",
        "%s = f32[100]{0} all-reduce-start(%a), replica_groups=[1,4]<=[4]",
        "%t = f32[100]{0} all-reduce-done(%s)",
        "%g = (f32[100]{0}, f32[400]{0}) all-gather-start(%a), replica_groups=mesh['x'=4,'y'=2] {'x'}, dimensions={0}",
        "%h = f32[400]{0} all-gather-done(%g)",
        "%q = f32[25]{0} reduce-scatter(%a), replica_groups={{0,1,2,3}}, dimensions={0}",
        "%p = (f32[100]{0}, f32[100]{0}, u32[], u32[]) collective-permute-start(%a), source_target_pairs={{0,1},{1,0}}",
        "%o = f32[100]{0} collective-permute-done(%p)",
        "%u = f32[100]{0} all-reduce(%a), replica_groups={{0},{1}}",
        "ROOT %z = f32[] constant(0)",
    )
    assert program_cost(text).collectives == (
        Collective("all-reduce", 2, 480 + 400, 2 * 0.75 * 880),
        Collective("all-gather", 1, 1600, 0.75 * 1600),
        Collective("reduce-scatter", 1, 400, 0.75 * 400),
        Collective("collective-permute", 1, 400, 400.0),
    )


def test_a_collective_beside_the_program_counts_where_it_starts() -> None:
    """As libtpu writes what the SparseCores of a TPU7x do: a call that starts, with a token to wait for."""
    text = """HloModule beside

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %z = f32[] add(%x, %y)
}, execution_thread="sparsecore"

%reduced (p: f32[100], q: f32[20], t: token[]) -> (f32[100], f32[20]) {
  %t = token[] parameter(2)
  %p = f32[100]{0} parameter(0)
  %q = f32[20]{0} parameter(1)
  ROOT %r = (f32[100]{0}, f32[20]{0}) all-reduce(%p, %q), replica_groups=mesh['a'=8,'b'=1] {'a'}, to_apply=%add
}, execution_thread="sparsecore"

ENTRY %main (p: f32[100], q: f32[20]) -> f32[100] {
  %p = f32[100]{0} parameter(0)
  %q = f32[20]{0} parameter(1)
  %ready = s32[]{:S(2)} custom-call(), custom_call_target="PrepareAsyncCallStart"
  %t = token[] custom-call(%ready), custom_call_target="PrepareAsyncCallDone"
  %s = ((f32[100], f32[20], token[]), (f32[100], f32[20])) call-start(%p, %q, %t), to_apply=%reduced
  %d = (f32[100]{0}, f32[20]{0}) call-done(%s)
  ROOT %sum = f32[100]{0} get-tuple-element(%d), index=0
}
"""
    found = program_cost(text)
    assert found.collectives == (Collective("all-reduce", 1, 480, 2 * 7 / 8 * 480),)
    assert (found.flops, found.hbm_bytes) == (120, 2 * 480)


def test_bytes_to_other_slices_are_counted_apart() -> None:
    """As libtpu writes it: a reduce-scatter within the slice, its result to the host, the sum of all slices back."""
    crossing = 'is_host_transfer=true, frontend_attributes={_xla_megascale_transfer_type="ALL_REDUCE"}'
    text = entry(
        "%a = f32[64,8,128]{2,1,0:T(8,128)} parameter(0)",
        "%x = token[] after-all()",
        f"%s = (f32[64,8,128]{{2,1,0:T(8,128)}}, u32[], token[]) send(%a, %x), channel_id=2, {crossing}",
        f"%r = (f32[64,8,128]{{2,1,0:T(8,128)}}, u32[], token[]) recv(%x), channel_id=1, {crossing}",
        "%t = token[] send-done(%s), channel_id=2, is_host_transfer=true",
        "%u = (f32[64,8,128]{2,1,0:T(8,128)}, token[]) recv-done(%r), channel_id=1, is_host_transfer=true",
        "%v = (f32[64,8,128]{2,1,0:T(8,128)}, u32[], token[]) send(%a, %x), channel_id=3, is_host_transfer=true",
        "ROOT %z = f32[64,8,128]{2,1,0:T(8,128)} get-tuple-element(%u), index=0",
    )
    assert program_cost(text).dcn_bytes == 64 * 8 * 128 * 4
    assert program_cost(text).collectives == ()


def test_a_transfer_that_a_fusion_only_carries_on_is_counted_where_it_starts() -> None:
    gather = "f32[40]{0} all-gather(%p), channel_id=7, replica_groups={{0,1,2,3}}, dimensions={0}"
    text = f"""HloModule asynchronous

%start (p: f32[10]) -> (f32[10], f32[40]) {{
  %p = f32[10]{{0}} parameter(0)
  %g = {gather}
  ROOT %c = (f32[10]{{0}}, f32[40]{{0}}) custom-call(%g), custom_call_target="AsyncCollectiveStart"
}}

%beside (p: f32[10], q: f32[40], x: f32[6]) -> (f32[6], f32[10], f32[40]) {{
  %p = f32[10]{{0}} parameter(0)
  %q = f32[40]{{0}} parameter(1)
  %x = f32[6]{{0}} parameter(2)
  %y = f32[6]{{0}} add(%x, %x)
  %g = {gather}
  ROOT %t = (f32[6]{{0}}, f32[10]{{0}}, f32[40]{{0}}) tuple(%y, %p, %g)
}}

%all-reduce-scatter.1 (p: f32[40]) -> f32[10] {{
  %p = f32[40]{{0}} parameter(0)
  %r = f32[40]{{0}} all-reduce(%p), replica_groups={{{{0,1,2,3}}}}
  %zero = s32[] constant(0)
  ROOT %d = f32[10]{{0}} dynamic-slice(%r, %zero), dynamic_slice_sizes={{10}}
}}

ENTRY %main (a: f32[10], x: f32[6]) -> f32[10] {{
  %a = f32[10]{{0}} parameter(0)
  %x = f32[6]{{0}} parameter(1)
  %s = (f32[10]{{0}}, f32[40]{{0}}) fusion(%a), kind=kCustom, calls=%start
  %s0 = f32[10]{{0}} get-tuple-element(%s), index=0
  %s1 = f32[40]{{0}} get-tuple-element(%s), index=1
  %b = (f32[6]{{0}}, f32[10]{{0}}, f32[40]{{0}}) fusion(%s0, %s1, %x), kind=kLoop, calls=%beside
  %b2 = f32[40]{{0}} get-tuple-element(%b), index=2
  ROOT %r = f32[10]{{0}} fusion(%b2), kind=kCustom, calls=%all-reduce-scatter.1
}}
"""
    found = program_cost(text)
    assert found.collectives == (
        Collective("all-gather", 1, 160, 120.0),
        Collective("reduce-scatter", 1, 160, 120.0),
    )
    # start: reads a, writes a and the whole; beside: reads and writes x; scatter: reads the whole, writes its part
    assert found.bytes == (40 + 40 + 160) + (24 + 24) + (160 + 40)


def test_tiles_pad_and_near_memory_is_not_hbm() -> None:
    text = entry(
        "%a = f32[16,20,100]{2,1,0:T(8,128)} parameter(0)",
        "ROOT %b = bf16[16,20,100]{2,1,0:T(8,128)(2,1)S(1)} convert(%a)",
    )
    found = program_cost(text)
    assert found.hbm_bytes == 4 * 16 * 24 * 128
    assert found.bytes == 6 * 16 * 24 * 128


def test_a_kernel_costs_the_estimate_of_its_author() -> None:
    config = '{"custom_call_config":{"body":"x","cost_estimate":{"flops":"123","bytes_accessed":"456"}}}'
    call = f'custom-call(%a), custom_call_target="tpu_custom_call", backend_config={config}'
    found = program_cost(entry("%a = f32[10]{0} parameter(0)", f"ROOT %b = f32[10]{{0}} {call}"))
    assert (found.flops, found.bytes) == (123, 456)


def test_a_product_by_cublas_counts_as_one() -> None:
    config = '{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}}}'
    call = f'custom-call(%a, %b), custom_call_target="__cublas$gemm", backend_config={config}'
    lines = ["%a = bf16[8,16]{1,0} parameter(0)", "%b = bf16[16,32]{1,0} parameter(1)"]
    found = program_cost(entry(*lines, f"%c = (bf16[8,32]{{1,0}}, s8[64]{{0}}) {call}", "ROOT %z = f32[] constant(0)"))
    assert found.flops == 2 * 8 * 16 * 32


@pytest.mark.parametrize("name", ["fmhaSoftmax", "fmhaScaleBiasSoftmax", "fmhaScaleBiasSoftmaxDropout"])
def test_cudnns_attention_counts_its_products(name: str) -> None:
    """Scores and context forward, five products backward; bfloat16 arrays and the sums of exponentials in float32."""
    scores = '"intermediate_tensor_shape": {"element_type": "BF16", "dimensions": ["2", "3", "16", "16"]}'
    config = f'backend_config={{"cudnn_fmha_backend_config": {{{scores}}}}}'
    array, sums = "bf16[2,16,3,8]{3,2,1,0}", "f32[2,3,16]{2,1,0}"
    forward = f'custom-call(%q, %q, %q), custom_call_target="__cudnn${name}", {config}'
    operands = "%q, %q, %q, %sums, %context, %context"
    backward = f'custom-call({operands}), custom_call_target="__cudnn${name}Backward", {config}'
    found = program_cost(
        entry(
            f"%q = {array} parameter(0)",
            f"%attended = ({array}, {sums}, u8[4096]{{0}}) {forward}",
            f"%context = {array} get-tuple-element(%attended), index=0",
            f"%sums = {sums} get-tuple-element(%attended), index=1",
            f"ROOT %gradients = ({array}, {array}, {array}, u8[4096]{{0}}) {backward}",
        )
    )
    product = 2 * 2 * 3 * 16 * 16 * 8
    size, small = 2 * 2 * 16 * 3 * 8, 4 * 2 * 3 * 16
    assert found.flops == (2 + 5) * product
    assert found.bytes == (4 + 8) * size + 2 * small, "without the workspace"
    assert found.kernels == {"cuDNN attention, backward": 1, "cuDNN attention, forward": 1}


def test_kernels_are_counted_by_kind() -> None:
    """A fusion in each of 12 rounds of the loop; Triton compiles those whose configuration says so."""
    assert program_cost(LOOP).kernels == {"fusion": 12}
    triton = 'calls=%product, backend_config={"fusion_backend_config":{"kind":"__triton_nested_gemm_fusion"}}'
    assert program_cost(LOOP.replace("calls=%product", triton)).kernels == {"Triton product": 12}
    softmax = triton.replace("nested_gemm_fusion", "softmax")
    no_product = LOOP.replace("dot(%p.0, %flat), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "copy(%flat)")
    assert program_cost(no_product.replace("calls=%product", softmax)).kernels == {"Triton fusion": 12}


def test_a_compiled_scan_of_scans() -> None:
    """As in a training step: 3 micro-batches of 5 layers, forward and backward, against the count on paper."""
    rows, wide, layers, micros = 32, 64, 5, 3

    def loss(ws: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.sum(jax.lax.scan(lambda h, w: (jnp.sin(h @ w), None), x, ws)[0])

    def step(ws: jax.Array, xs: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda total, x: (total + jax.grad(loss)(ws, x), None), jnp.zeros_like(ws), xs)[0]

    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in [(layers, wide, wide), (micros, rows, wide)]]
    compiled = jax.jit(step).lower(*shapes).compile()
    products = micros * layers * 3 * 2 * rows * wide * wide
    found, once = program_cost(compiled.as_text()), program_cost(compiled.as_text(), multiply_loops=False)
    assert products <= found.flops <= 1.05 * products
    # XLA counts a body once; so do we, where asked to.
    assert once.flops == pytest.approx(compiled.cost_analysis()["flops"], rel=0.02)


def test_without_loops_it_is_xlas_count() -> None:
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in [(256, 512), (512, 128)]]
    compiled = jax.jit(lambda x, w: jnp.sum(jax.nn.relu(x @ w), axis=0)).lower(*shapes).compile()
    found, xla = program_cost(compiled.as_text()), compiled.cost_analysis()
    assert found.flops == pytest.approx(xla["flops"], rel=0.02)
    assert found.bytes == pytest.approx(xla["bytes accessed"], rel=0.05)


def test_of_a_conditional_the_costlier_branch_counts() -> None:
    """A scan whose rounds take a product of 8 x 16 x 32 or one of 8 x 16 x 16, as local and global layers do."""

    def one(x: jax.Array, flag: jax.Array) -> tuple[jax.Array, None]:
        wide, narrow = jnp.ones((16, 32)) + x[0, 0], jnp.ones((16, 16)) + x[0, 0]
        return jax.lax.cond(flag, lambda x: (x @ wide)[:, :16], lambda x: x @ narrow, x), None

    text = (
        jax.jit(lambda x, flags: jax.lax.scan(one, x, flags)[0]).lower(jnp.ones((8, 16)), jnp.ones(5, bool)).compile()
    )
    assert "conditional(" in text.as_text()
    products = 5 * 2 * 8 * 16 * 32
    assert products <= program_cost(text.as_text()).flops < products + 5 * 2 * 8 * 16 * 16
