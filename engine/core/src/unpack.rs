//! Unpacks a dump that was compressed as a whole, as systemd-coredump leaves it, into a sparse file.
//!
//! A file may consist of several streams, one after the other (`cat a.gz b.gz`): all of them are read. A packed file may
//! be cut or damaged. Then the bytes before the damage are kept: the beginning of a core is worth having.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{mpsc, Arc};

const BUFFER: usize = 1 << 20;
const BUFFERS: usize = 4;
/// So much is asked of a decoder at once: what it had made of a piece in which it finds damage is lost.
const PIECE: usize = 1 << 16;
/// A run of zeros becomes a hole if it fills a block of the file.
const BLOCK: usize = 4096;
/// The largest window of a zstd stream, as a power of 2. The program zstd has the same limit without `--long`.
const WINDOW: u32 = 27;
/// The most memory for the dictionary of an xz stream, in KiB. `xz -9` uses 64 MiB.
const XZ_MEMORY: u32 = 512 << 10;

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// gzip (RFC 1952)
    Gzip,
    /// xz (the .xz file format, 2.1.1.1)
    Xz,
    /// Zstandard (RFC 8878, 3.1.1)
    Zstd,
    /// bzip2
    Bzip2,
    /// LZ4's frame format
    Lz4,
}

impl Form {
    /// Returns the form with this name: "gzip", "xz", "zstd", "bzip2" or "lz4".
    pub fn named(name: &str) -> Option<Form> {
        Some(match name {
            "gzip" => Form::Gzip,
            "xz" => Form::Xz,
            "zstd" => Form::Zstd,
            "bzip2" => Form::Bzip2,
            "lz4" => Form::Lz4,
            _ => return None,
        })
    }
}

/// Counts the bytes that are read from a packed file.
struct Counted<R> {
    inner: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(to)?;
        self.count.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

type Packed = BufReader<Counted<Box<dyn Read + Send + Sync>>>;

enum Decoder {
    Gzip(Box<flate2::bufread::MultiGzDecoder<Packed>>),
    Xz(Box<lzma_rust2::XzReader<Packed>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, Packed>>),
    Bzip2(Box<bzip2::bufread::MultiBzDecoder<Packed>>),
    Lz4(Box<lz4_flex::frame::FrameDecoder<Packed>>),
}

impl Decoder {
    fn new(form: Form, packed: Packed) -> io::Result<Decoder> {
        Ok(match form {
            Form::Gzip => Decoder::Gzip(Box::new(flate2::bufread::MultiGzDecoder::new(packed))),
            Form::Xz => Decoder::Xz(Box::new(lzma_rust2::XzReader::new_mem_limit(packed, true, XZ_MEMORY))),
            Form::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(packed)?;
                decoder.window_log_max(WINDOW)?;
                Decoder::Zstd(Box::new(decoder))
            }
            Form::Bzip2 => Decoder::Bzip2(Box::new(bzip2::bufread::MultiBzDecoder::new(packed))),
            Form::Lz4 => Decoder::Lz4(Box::new(lz4_flex::frame::FrameDecoder::new(packed))),
        })
    }

    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Decoder::Gzip(decoder) => decoder.read(to),
            Decoder::Xz(decoder) => decoder.read(to),
            Decoder::Zstd(decoder) => decoder.read(to),
            Decoder::Bzip2(decoder) => decoder.read(to),
            Decoder::Lz4(decoder) => loop {
                // The decoder says 0 at the end of each frame, and begins the next one when it is asked again.
                match decoder.read(to)? {
                    0 if !decoder.get_mut().fill_buf()?.is_empty() => {}
                    count => return Ok(count),
                }
            },
        }
    }
}

/// A packed file that is being unpacked.
pub struct Stream {
    decoder: Decoder,
    packed: Arc<AtomicU64>,
}

impl Stream {
    /// Begins to unpack. `packed` is read from where it is.
    ///
    /// # Errors
    /// There is no memory for the decoder.
    pub fn new(form: Form, packed: impl Read + Send + Sync + 'static) -> io::Result<Stream> {
        let count = Arc::new(AtomicU64::new(0));
        let inner: Box<dyn Read + Send + Sync> = Box::new(packed);
        let buffered = BufReader::with_capacity(BUFFER, Counted { inner, count: Arc::clone(&count) });
        Ok(Stream { decoder: Decoder::new(form, buffered)?, packed: count })
    }

    /// Returns how many packed bytes have been read.
    pub fn packed(&self) -> u64 {
        self.packed.load(Ordering::Relaxed)
    }

    /// Fills the buffer. Returns the number of bytes, which is less than its length only at the end, and the error that
    /// ended the stream there.
    pub fn fill(&mut self, to: &mut [u8]) -> (usize, Option<io::Error>) {
        let mut filled = 0;
        while let Some(rest) = to.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let most = rest.len().min(PIECE);
            match self.decoder.read(rest.get_mut(..most).unwrap_or_default()) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (filled, Some(error)),
            }
        }
        (filled, None)
    }
}

/// Why there is nothing more to unpack.
#[derive(Debug)]
pub enum Ended {
    /// The stream ended as it should.
    Whole,
    /// The packed file is cut or damaged.
    Damaged(io::Error),
}

/// Unpacks a file into another one, step by step. Blocks of zeros become holes. One thread unpacks while another writes.
pub struct Unpacker {
    stream: Stream,
    to: File,
    buffers: Vec<Vec<u8>>,
    size: u64,
    stored: u64,
}

/// A buffer, how many of its bytes are filled, and where they go.
type Filled = (Vec<u8>, usize, u64);

impl Unpacker {
    /// Begins to unpack into an empty file.
    pub fn new(stream: Stream, to: File) -> Unpacker {
        Unpacker { stream, to, buffers: vec![vec![0; BUFFER]; BUFFERS], size: 0, stored: 0 }
    }

    /// Unpacks about `bytes` more. None: there is more to unpack.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn step(&mut self, bytes: u64) -> io::Result<Option<Ended>> {
        let goal = self.size.saturating_add(bytes);
        let (filled, to_write) = mpsc::sync_channel::<Filled>(BUFFERS);
        let (written, empty) = mpsc::channel();
        for buffer in self.buffers.drain(..) {
            let _ = written.send(buffer);
        }
        let (to, stream, size) = (&self.to, &mut self.stream, &mut self.size);
        let (ended, stored) = std::thread::scope(|scope| {
            let writer = scope.spawn(move || write_all(to, &to_write, &written));
            let mut ended = None;
            while *size < goal && ended.is_none() {
                let Ok(mut buffer) = empty.recv() else { break }; // the writer has failed
                let (count, error) = stream.fill(&mut buffer);
                ended = match error {
                    Some(error) => Some(Ended::Damaged(error)),
                    None => (count < buffer.len()).then_some(Ended::Whole),
                };
                if filled.send((buffer, count, *size)).is_err() {
                    break;
                }
                *size += count as u64;
            }
            drop(filled);
            (ended, writer.join().unwrap_or_else(|_| Err(io::Error::other("the writing thread ended"))))
        });
        self.stored += stored?;
        self.buffers = empty.try_iter().collect();
        ended.map_or(Ok(None), |how| self.end(how))
    }

    fn end(&mut self, how: Ended) -> io::Result<Option<Ended>> {
        self.to.set_len(self.size)?; // it may end with a hole
        Ok(Some(how))
    }

    /// Returns the size of the unpacked file so far, with its holes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns how many bytes were stored: the size without holes.
    pub fn stored(&self) -> u64 {
        self.stored
    }

    /// Returns how many packed bytes have been read.
    pub fn packed(&self) -> u64 {
        self.stream.packed()
    }
}

/// Writes buffers until there are no more, and hands each back. Returns how many bytes were stored.
fn write_all(to: &File, filled: &mpsc::Receiver<Filled>, written: &mpsc::Sender<Vec<u8>>) -> io::Result<u64> {
    let mut stored = 0;
    for (buffer, count, at) in filled {
        stored += write_sparse(to, at, buffer.get(..count).unwrap_or_default())?;
        let _ = written.send(buffer);
    }
    Ok(stored)
}

/// Writes the runs of blocks that are not all zeros. Returns how many bytes those have.
fn write_sparse(to: &File, at: u64, bytes: &[u8]) -> io::Result<u64> {
    let mut stored = 0;
    let mut place = 0;
    let is_hole = |block: &[u8]| block.iter().all(|byte| *byte == 0);
    for run in bytes.chunks(BLOCK).collect::<Vec<_>>().chunk_by(|a, b| is_hole(a) == is_hole(b)) {
        let size: usize = run.iter().map(|block| block.len()).sum();
        if run.first().is_some_and(|block| !is_hole(block)) {
            to.write_all_at(bytes.get(place..place + size).unwrap_or_default(), at + place as u64)?;
            stored += size as u64;
        }
        place += size;
    }
    Ok(stored)
}
