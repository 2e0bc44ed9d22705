//! Streams, events, capture and graphs. Work runs when it is enqueued, so streams only order captures.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use cudarc::driver::sys::CUresult;

use super::device::store;
use super::{Driver, Outcome, call, work};
use crate::machine::Launch;

/// One piece of work.
#[derive(Clone)]
pub enum Node {
    Launch(Arc<Launch>),
    CopyIn { to: u64, data: Vec<u8> },
    CopyAcross { to: u64, from: u64, bytes: usize },
}

pub struct Stream {
    pub device: i32,
    /// Graph that it is being captured into.
    pub capture: Option<usize>,
    /// The capture began here.
    origin: bool,
}

impl Stream {
    fn new(device: i32) -> Self {
        Stream { device, capture: None, origin: false }
    }
}

pub struct Event {
    device: i32,
    /// Graph in whose capture it was recorded.
    capture: Option<usize>,
    recorded: bool,
}

/// A graph under capture, complete, or instantiated: its nodes in an order that its edges allow.
#[derive(Clone, Default)]
pub struct Graph {
    nodes: Vec<Node>,
    executable: bool,
}

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
const HANDLE: CUresult = CUresult::CUDA_ERROR_INVALID_HANDLE;

impl Driver {
    pub fn stream(&mut self, stream: usize) -> Result<&mut Stream, CUresult> {
        // The default streams, null, legacy and per thread, are those of the current context.
        if stream <= 2 {
            let device = self.device;
            return Ok(self.streams.entry(stream | (device as usize) << 2).or_insert_with(|| Stream::new(device)));
        }
        self.streams.get_mut(&stream).ok_or(HANDLE)
    }

    pub fn capturing(&mut self, stream: usize) -> Result<bool, CUresult> {
        Ok(self.stream(stream)?.capture.is_some())
    }

    /// Runs work, or adds it to the graph that the stream is captured into.
    pub fn enqueue(&mut self, stream: usize, node: Node) -> Outcome {
        match self.stream(stream)?.capture {
            Some(graph) => {
                self.graphs.get_mut(&graph).ok_or(HANDLE)?.nodes.push(node);
                Ok(())
            }
            None => self.run(node),
        }
    }

    fn run(&mut self, node: Node) -> Outcome {
        match node {
            Node::Launch(launch) => {
                self.execute(&launch);
                Ok(())
            }
            Node::CopyIn { to, data } => self.copy_in(to, &data),
            Node::CopyAcross { to, from, bytes } => self.copy_across(to, from, bytes),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(stream: *mut *mut c_void, _flags: c_uint) -> CUresult {
    work("cuStreamCreate", |driver| {
        let handle = driver.handle();
        driver.streams.insert(handle, Stream::new(driver.device));
        // SAFETY: the caller's pointer.
        unsafe { store(stream, handle as *mut c_void) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreateWithPriority(stream: *mut *mut c_void, flags: c_uint, _priority: i32) -> CUresult {
    // SAFETY: the caller's pointer.
    unsafe { cuStreamCreate(stream, flags) }
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: *mut c_void) -> CUresult {
    call("cuStreamDestroy", |driver| driver.streams.remove(&(stream as usize)).map(|_| ()).ok_or(HANDLE))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: *mut c_void) -> CUresult {
    work("cuStreamSynchronize", |driver| match driver.capturing(stream as usize)? {
        true => Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
        false => Ok(()),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(stream: *mut c_void) -> CUresult {
    cuStreamSynchronize(stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: *mut c_void, event: *mut c_void, _flags: c_uint) -> CUresult {
    work("cuStreamWaitEvent", |driver| {
        let graph = driver.events.get(&(event as usize)).ok_or(HANDLE)?.capture;
        let stream = driver.stream(stream as usize)?;
        match (graph, stream.capture) {
            (Some(graph), None) => stream.capture = Some(graph),
            (Some(graph), Some(own)) if graph != own => return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE),
            (None, Some(_)) => return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION),
            _ => {}
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(event: *mut *mut c_void, _flags: c_uint) -> CUresult {
    work("cuEventCreate", |driver| {
        let handle = driver.handle();
        driver.events.insert(handle, Event { device: driver.device, capture: None, recorded: false });
        // SAFETY: the caller's pointer.
        unsafe { store(event, handle as *mut c_void) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: *mut c_void) -> CUresult {
    call("cuEventDestroy", |driver| driver.events.remove(&(event as usize)).map(|_| ()).ok_or(HANDLE))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: *mut c_void, stream: *mut c_void) -> CUresult {
    work("cuEventRecord", |driver| {
        let &mut Stream { device, capture, .. } = driver.stream(stream as usize)?;
        let event = driver.events.get_mut(&(event as usize)).ok_or(HANDLE)?;
        if event.device != device {
            eprintln!("cudasim: an event of device {} recorded in a stream of device {device}", event.device);
            return Err(HANDLE);
        }
        *event = Event { device, capture, recorded: true };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: *mut c_void) -> CUresult {
    work("cuEventSynchronize", |driver| match driver.events.get(&(event as usize)) {
        Some(event) if event.capture.is_some() => Err(CUresult::CUDA_ERROR_CAPTURED_EVENT),
        Some(_) => Ok(()),
        None => Err(HANDLE),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: *mut c_void) -> CUresult {
    cuEventSynchronize(event)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime_v2(time: *mut f32, start: *mut c_void, end: *mut c_void) -> CUresult {
    work("cuEventElapsedTime", |driver| {
        for event in [start, end] {
            if !driver.events.get(&(event as usize)).ok_or(HANDLE)?.recorded {
                return Err(HANDLE);
            }
        }
        // SAFETY: the caller's pointer. Simulated work takes no time.
        unsafe { store(time, 0.0) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime(time: *mut f32, start: *mut c_void, end: *mut c_void) -> CUresult {
    // SAFETY: the caller's pointer.
    unsafe { cuEventElapsedTime_v2(time, start, end) }
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamBeginCapture_v2(stream: *mut c_void, _mode: c_uint) -> CUresult {
    work("cuStreamBeginCapture", |driver| {
        if stream as usize <= 1 {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        let graph = driver.handle();
        let stream = driver.stream(stream as usize)?;
        if stream.capture.is_some() {
            return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
        }
        (stream.capture, stream.origin) = (Some(graph), true);
        driver.graphs.insert(graph, Graph::default());
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamEndCapture(stream: *mut c_void, graph: *mut *mut c_void) -> CUresult {
    work("cuStreamEndCapture", |driver| {
        let own = driver.stream(stream as usize)?;
        let (Some(captured), true) = (own.capture, own.origin) else { return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE) };
        for stream in driver.streams.values_mut().filter(|s| s.capture == Some(captured)) {
            (stream.capture, stream.origin) = (None, false);
        }
        // SAFETY: the caller's pointer.
        unsafe { store(graph, captured as *mut c_void) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamIsCapturing(stream: *mut c_void, status: *mut c_uint) -> CUresult {
    work("cuStreamIsCapturing", |driver| {
        let capturing = driver.capturing(stream as usize)?;
        // SAFETY: the caller's pointer.
        unsafe { store(status, capturing.into()) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphInstantiateWithFlags(
    executable: *mut *mut c_void,
    graph: *mut c_void,
    _flags: u64,
) -> CUresult {
    work("cuGraphInstantiate", |driver| {
        let nodes = driver.graphs.get(&(graph as usize)).ok_or(INVALID)?.nodes.clone();
        let handle = driver.handle();
        driver.graphs.insert(handle, Graph { nodes, executable: true });
        // SAFETY: the caller's pointer.
        unsafe { store(executable, handle as *mut c_void) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphLaunch(executable: *mut c_void, stream: *mut c_void) -> CUresult {
    work("cuGraphLaunch", |driver| {
        let graph = driver.graphs.get(&(executable as usize)).filter(|g| g.executable).ok_or(HANDLE)?;
        for node in graph.nodes.clone() {
            driver.enqueue(stream as usize, node)?;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphDestroy(graph: *mut c_void) -> CUresult {
    call("cuGraphDestroy", |driver| driver.graphs.remove(&(graph as usize)).map(|_| ()).ok_or(INVALID))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecDestroy(executable: *mut c_void) -> CUresult {
    cuGraphDestroy(executable)
}
