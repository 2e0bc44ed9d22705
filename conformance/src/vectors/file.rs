//! The file of recorded results.
//!
//! Little-endian: the line `jfa-vectors 1`, the line with the name of the device, then for each problem its name with a
//! length of 2 bytes, the hash of its inputs (8 bytes), the numbers of elements of O and LSE (4 bytes each), O in its
//! type and LSE in fp32.

use crate::dtype::Dtype;

const MAGIC: &str = "jfa-vectors 1\n";

/// Results of one problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Path of the problem; its last part is the type of O.
    pub path: String,
    /// Hash of the inputs.
    pub inputs: u64,
    /// Output, used rows only.
    pub o: Vec<f32>,
    /// One value per row of O and query head.
    pub lse: Vec<f32>,
}

/// What a device computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// Name of the device.
    pub device: String,
    /// One a problem.
    pub records: Vec<Record>,
}

impl Record {
    /// Type of O.
    pub fn dtype(path: &str) -> Option<Dtype> {
        let name = path.rsplit('/').next()?;
        [Dtype::Bf16, Dtype::Fp16, Dtype::Fp32].into_iter().find(|dtype| dtype.name() == name)
    }
}

impl Recording {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = format!("{MAGIC}{}\n", self.device).into_bytes();
        for record in &self.records {
            bytes.extend((record.path.len() as u16).to_le_bytes());
            bytes.extend(record.path.bytes());
            bytes.extend(record.inputs.to_le_bytes());
            bytes.extend((record.o.len() as u32).to_le_bytes());
            bytes.extend((record.lse.len() as u32).to_le_bytes());
            Record::dtype(&record.path).unwrap_or(Dtype::Fp32).encode(&record.o, &mut bytes);
            Dtype::Fp32.encode(&record.lse, &mut bytes);
        }
        bytes
    }

    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let bytes = bytes.strip_prefix(MAGIC.as_bytes()).ok_or("no file of vectors, or of another version")?;
        let end = bytes.iter().position(|&byte| byte == b'\n').ok_or("the name of the device does not end")?;
        let device = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut reader = Reader(&bytes[end + 1..]);
        let mut records = Vec::new();
        while !reader.0.is_empty() {
            records.push(reader.record()?);
        }
        Ok(Recording { device, records })
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take(&mut self, count: usize) -> Result<&[u8], String> {
        let (head, rest) = self.0.split_at_checked(count).ok_or("the file of vectors is cut off")?;
        self.0 = rest;
        Ok(head)
    }

    fn number(&mut self, bytes: usize) -> Result<u64, String> {
        Ok(self.take(bytes)?.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn values(&mut self, dtype: Dtype, count: usize) -> Result<Vec<f32>, String> {
        let mut values = Vec::new();
        dtype.decode(self.take(count.saturating_mul(dtype.size()))?, &mut values);
        Ok(values)
    }

    fn record(&mut self) -> Result<Record, String> {
        let length = self.number(2)? as usize;
        let path = String::from_utf8_lossy(self.take(length)?).into_owned();
        let dtype = Record::dtype(&path).ok_or_else(|| format!("{path} does not end in a type"))?;
        let inputs = self.number(8)?;
        let (o, lse) = (self.number(4)? as usize, self.number(4)? as usize);
        Ok(Record { inputs, o: self.values(dtype, o)?, lse: self.values(Dtype::Fp32, lse)?, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let record = |path: &str, o: &[f32]| Record {
            path: path.into(),
            inputs: 0x0123_4567_89ab_cdef,
            o: o.into(),
            lse: vec![0.1, f32::NEG_INFINITY],
        };
        let records = vec![record("vectors/a/bf16", &[1.0, -2.5]), record("vectors/b/fp16", &[])];
        let recording = Recording { device: "NVIDIA H200".into(), records };
        let bytes = recording.encode();
        assert_eq!(Recording::decode(&bytes), Ok(recording));
        assert!(Recording::decode(&bytes[..bytes.len() - 1]).is_err() && Recording::decode(b"other").is_err());
    }
}
