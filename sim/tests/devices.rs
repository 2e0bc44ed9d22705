//! Two devices behind the driver's own interface: contexts, streams, memory, and what one may not do with the other's.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use cudasim::harness::Simulator;

type Status = c_uint;
const SUCCESS: Status = 0;
const INVALID_CONTEXT: Status = 201;
const PEER_ACCESS_UNSUPPORTED: Status = 217;
const INVALID_HANDLE: Status = 400;
const ILLEGAL_ADDRESS: Status = 700;

unsafe extern "C" {
    fn cuInit(flags: c_uint) -> Status;
    fn cuDeviceGetCount(count: *mut c_int) -> Status;
    fn cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int) -> Status;
    fn cuCtxSetCurrent(context: usize) -> Status;
    fn cuCtxGetDevice(device: *mut c_int) -> Status;
    fn cuCtxSynchronize() -> Status;
    fn cuCtxEnablePeerAccess(peer: usize, flags: c_uint) -> Status;
    fn cuDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) -> Status;
    fn cuMemAlloc_v2(pointer: *mut u64, bytes: usize) -> Status;
    fn cuMemFree_v2(pointer: u64) -> Status;
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Status;
    fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> Status;
    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> Status;
    fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) -> Status;
    fn cuPointerGetAttribute(value: *mut c_void, attribute: c_int, pointer: u64) -> Status;
    fn cuStreamCreate(stream: *mut usize, flags: c_uint) -> Status;
    fn cuStreamSynchronize(stream: usize) -> Status;
    fn cuEventCreate(event: *mut usize, flags: c_uint) -> Status;
    fn cuEventRecord(event: usize, stream: usize) -> Status;
    fn cuStreamWaitEvent(stream: usize, event: usize, flags: c_uint) -> Status;
    fn cuModuleLoadData(module: *mut usize, image: *const c_char) -> Status;
    fn cuModuleGetFunction(function: *mut usize, module: usize, name: *const c_char) -> Status;
    fn cuLaunchKernel(
        function: usize,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        dynamic: c_uint,
        stream: usize,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Status;
}

/// Adds 1 to each of 32 words, and to a variable of the module.
const TEXT: &str = ".version 8.7\n.target sm_90a\n.address_size 64\n.global .align 4 .u32 runs = 5;\n
    .visible .entry bump(.param .u64 data)\n{\n.reg .pred %p<2>;\n.reg .b32 %r<8>;\n.reg .b64 %d<8>;
    ld.param.u64 %d1, [data];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d2, %r1, 4;
    add.u64 %d3, %d1, %d2;
    ld.global.u32 %r2, [%d3];
    mov.u64 %d4, runs;
    ld.global.u32 %r3, [%d4];
    add.u32 %r4, %r2, %r3;
    st.global.u32 [%d3], %r4;
    bar.warp.sync -1;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra done;
    add.u32 %r5, %r3, 1;
    st.global.u32 [%d4], %r5;
    done:
    ret;\n}\n";

fn ok(status: Status) {
    assert_eq!(status, SUCCESS);
}

/// What a call stores through its first argument.
fn out<T: Default>(call: impl FnOnce(*mut T) -> Status) -> T {
    let mut value = T::default();
    ok(call(&raw mut value));
    value
}

/// All in one test, because the environment and the driver belong to the process.
#[test]
fn two_devices() {
    // The rest of the crate is linked, too.
    assert!(Simulator::new("").is_ok());
    // SAFETY: the only test of this program, so no other thread reads the environment; every call gets what it
    // documents.
    unsafe {
        std::env::set_var("CUDASIM_DEVICES", "2");
        ok(cuInit(0));
        assert_eq!(out(|count| cuDeviceGetCount(count)), 2);
        assert_eq!(cuCtxSynchronize(), INVALID_CONTEXT, "none is current");
        let contexts = [0, 1].map(|device| out(|context| cuDevicePrimaryCtxRetain(context, device)));
        assert_ne!(contexts[0], contexts[1]);

        let image = CString::new(TEXT).unwrap();
        let (mut memory, mut streams, mut events) = ([0; 2], [0; 2], [0; 2]);
        for device in [0usize, 1] {
            ok(cuCtxSetCurrent(contexts[device]));
            assert_eq!(out(|found| cuCtxGetDevice(found)), device as c_int);
            let free = || {
                let (mut free, mut total) = (0, 0);
                ok(cuMemGetInfo_v2(&raw mut free, &raw mut total));
                (free, total)
            };
            assert_eq!(free().0, free().1, "what the other device has allocated does not count here");
            memory[device] = out(|pointer| cuMemAlloc_v2(pointer, 128));
            assert_eq!(free().1 - free().0, 128);
            let ordinal = out(|value: *mut c_int| cuPointerGetAttribute(value.cast(), 9, memory[device]));
            assert_eq!(ordinal, device as c_int);
            let words: [u32; 32] = std::array::from_fn(|i| 100 * device as u32 + i as u32);
            ok(cuMemcpyHtoD_v2(memory[device], words.as_ptr().cast(), 128));
            streams[device] = out(|stream| cuStreamCreate(stream, 0));
            events[device] = out(|event| cuEventCreate(event, 0));
        }
        let module = out(|module| cuModuleLoadData(module, image.as_ptr()));
        let bump = out(|function| cuModuleGetFunction(function, module, c"bump".as_ptr()));
        let launch = |data: u64, stream: usize| {
            let mut data = data;
            let mut params = [(&raw mut data).cast::<c_void>()];
            cuLaunchKernel(bump, 1, 1, 1, 32, 1, 1, 0, stream, params.as_mut_ptr(), null_mut())
        };
        let first = |pointer: u64| {
            let mut word = 0u32;
            ok(cuMemcpyDtoH_v2((&raw mut word).cast(), pointer, 4));
            word
        };

        // The stream says where a kernel runs, whatever context is current; each device has its own variables.
        ok(launch(memory[0], streams[0]));
        ok(launch(memory[1], streams[1]));
        ok(launch(memory[1], streams[1]));
        ok(launch(memory[1], 0));
        for device in [0, 1] {
            ok(cuStreamSynchronize(streams[device]));
        }
        assert_eq!([first(memory[0]), first(memory[1])], [5, 100 + 5 + 6 + 7]);

        // Events belong to the streams of their device, and order streams of any.
        ok(cuEventRecord(events[0], streams[0]));
        assert_eq!(cuEventRecord(events[0], streams[1]), INVALID_HANDLE);
        ok(cuStreamWaitEvent(streams[1], events[0], 0));

        // Copies reach both devices, kernels only their own.
        assert_eq!(out(|can| cuDeviceCanAccessPeer(can, 0, 1)), 0);
        assert_eq!(cuCtxEnablePeerAccess(contexts[0], 0), PEER_ACCESS_UNSUPPORTED);
        ok(cuMemcpyDtoD_v2(memory[0], memory[1], 128));
        assert_eq!(first(memory[0]), 118);
        ok(launch(memory[0], streams[1]));
        assert_eq!(cuStreamSynchronize(streams[1]), ILLEGAL_ADDRESS);
        assert_eq!(cuMemFree_v2(memory[1]), ILLEGAL_ADDRESS, "the error stays");

        // The other device goes on.
        ok(cuCtxSetCurrent(contexts[0]));
        ok(launch(memory[0], 0));
        ok(cuCtxSynchronize());
        assert_eq!(first(memory[0]), 118 + 6);
        ok(cuMemFree_v2(memory[0]));
    }
}
