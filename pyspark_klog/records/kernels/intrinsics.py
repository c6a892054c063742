"""LLVM code for operations that numba cannot compile from Python, or not to such fast code.

The operations are unaligned loads, a plain memory copy, prefetching, and the processor's CRC-32C.
All of them work in compiled kernels only, and none checks that a position is inside its array.
"""

from typing import Any

from llvmlite import binding, ir

from pyspark_klog.records.kernels.jit import numba

cgutils: Any = numba.core.cgutils
types: Any = numba.types

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)


def _intrinsic(typed: Any) -> Any:
    """Turn ``typed`` into a numba intrinsic, a function that kernels can call.

    ``typed`` gets the types of a call's arguments, and returns the signature of the call and the
    function that generates its machine code. The intrinsic has the parameters of ``typed``.
    """
    return numba.extending.intrinsic(typed)


def _address(context: Any, builder: Any, array_type: Any, array: Any, position: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [position])


def _load(bits: int) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _address(context, builder, signature.args[0], *arguments)
        found = builder.load(builder.bitcast(place, ir.IntType(bits).as_pointer()), align=1)
        return builder.zext(found, _I64) if bits < 64 else found

    def typed(_: Any, buf: Any, __: Any) -> Any:
        return types.int64(buf, types.int64), generate

    return _intrinsic(typed)


byte_at = _load(8)
load_u32 = _load(32)
load_i64 = _load(64)


def _copy() -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target = _address(context, builder, signature.args[0], *arguments[:2])
        source = _address(context, builder, signature.args[2], *arguments[2:4])
        cgutils.raw_memcpy(builder, target, source, arguments[4], 1)
        return context.get_dummy_value()

    def typed(_: Any, to: Any, __: Any, buf: Any, ___: Any, ____: Any) -> Any:
        return types.void(to, types.int64, buf, types.int64, types.int64), generate

    return _intrinsic(typed)


copy_bytes = _copy()


def _prefetch() -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _address(context, builder, signature.args[0], *arguments)
        place = builder.bitcast(place, _I8.as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [place.type, _I32, _I32, _I32])
        function = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
        # Arguments of llvm.prefetch: rw = 0 (for reading), locality = 3 (keep in all cache levels),
        # cache type = 1 (data cache).
        builder.call(function, [place, _I32(0), _I32(3), _I32(1)])
        return context.get_dummy_value()

    def typed(_: Any, buf: Any, __: Any) -> Any:
        return types.void(buf, types.int64), generate

    return _intrinsic(typed)


prefetch = _prefetch()


def _crc_instructions() -> str:
    """Return whose CRC-32C instructions numba may use: ``x86``, ``arm``, or empty for none."""
    config = numba.config
    # NUMBA_CPU_FEATURES replaces the features of the host's processor, and so does a NUMBA_CPU_NAME
    # of "generic". LLVM aborts the process if the code contains an instruction that the features do
    # not include. With another NUMBA_CPU_NAME alone klog does without these instructions.
    if config.CPU_NAME is not None or config.CPU_FEATURES is not None:
        allowed = (config.CPU_FEATURES or "").split(",")
        has = {feature[1:] for feature in allowed if feature.startswith("+")}
    else:
        found = binding.get_host_cpu_features()
        has = {feature for feature, is_there in found.items() if is_there}
    architecture = binding.get_process_triple().split("-")[0]
    if architecture in ("x86_64", "i686") and "sse4.2" in has:
        return "x86"
    if architecture in ("aarch64", "arm64") and "crc" in has:
        return "arm"
    return ""


CRC_INSTRUCTIONS = _crc_instructions()


def _call(builder: Any, name: str, *arguments: Any) -> Any:
    """Call the LLVM intrinsic ``name``, whose result has the type of its first argument."""
    kinds = [argument.type for argument in arguments]
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(kinds[0], kinds), name)
    return builder.call(function, arguments)


def _crc_step(bits: int) -> Any:
    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        crc, data = arguments
        if CRC_INSTRUCTIONS == "x86" and bits == 64:
            return _call(builder, "llvm.x86.sse42.crc32.64.64", crc, data)
        crc = builder.trunc(crc, _I32)
        if CRC_INSTRUCTIONS == "x86":
            crc = _call(builder, "llvm.x86.sse42.crc32.32.8", crc, builder.trunc(data, _I8))
        elif bits == 64:
            crc = _call(builder, "llvm.aarch64.crc32cx", crc, data)
        else:
            crc = _call(builder, "llvm.aarch64.crc32cb", crc, builder.trunc(data, _I32))
        return builder.zext(crc, _I64)

    def typed(_: Any, __: Any, ___: Any) -> Any:
        return types.int64(types.int64, types.int64), generate

    return _intrinsic(typed)


# Both functions take (CRC register, number) and return the next CRC register: crc32c_add_word after
# the eight bytes of the number, lowest first, and crc32c_add_byte after its lowest byte.
crc32c_add_word = _crc_step(64)
crc32c_add_byte = _crc_step(8)
