// Package segment stores one partition's committed batches in files that are
// read, copied and moved as they are.
//
// It owns the files of a partition's folder, their indexes, their recovery and
// the detection of damage. It does not know what is committed: the caller appends
// only that, and the journal brings again whatever a crash takes away.
//
// # Files
//
// A segment holds the batches of an interval of offsets [base, end), one after
// the other from byte 0, stamped, exactly as core/batch lays them out. It is
// named by its base in 20 decimal digits. The one being appended to is BASE.active,
// and there is at most one; a rolled one never changes and is BASE.segment. The
// name tells, not the content, because a publisher chooses the last bytes of an
// active file.
//
//	BASE.active    batch batch batch …
//	BASE.segment   batch … batch | offset blocks | time blocks | footer
//
// Both indexes are sparse: one entry for the first batch, and one for each batch
// that begins 64 KiB or more after the last entry's. Entry i of both is about the
// same batch. All numbers are little-endian.
//
//	block, at most 255 entries
//	  0 crc32c   u32  of [4, 8+16*count)
//	  4 kind     u16  1 offsets, 2 times
//	  6 count    u16
//	  8 entries  count × (key u64, position u64)
//
// position is the batch's first byte in the file. An offset entry's key is the
// batch's base. A time entry's key is the greatest append time (i64, nanoseconds
// since the Unix epoch) of all batches of the file before this one, the least
// i64 for the first: so the first batch with an append time of at least t is at
// or behind the last entry whose key is below t, even if times went backwards.
//
//	footer, the last 64 bytes
//	  0 magic    u32  "TDSF"
//	  4 crc32c   u32  of [8,64)
//	  8 base     u64
//	 16 end      u64
//	 24 bytes    u64  of the batches; the first block begins there
//	 32 maxTime  i64  greatest append time in the file
//	 40 entries  u32  of each index
//	 44 version  u32  1
//	 48 zero     16 bytes
//
// A file gets its footer and is synced before it is renamed, so a BASE.segment
// without an intact footer was damaged later, not torn.
//
// # Invariants
//
//   - The segments' intervals are adjacent: each begins where the one before ends.
//   - Bytes are written at positions known beforehand. A write that failed changed
//     nothing that counts, and may be tried again (a full disk heals).
//   - After a failed sync the store takes no more writes: see disk.FS.
//   - A batch is returned only after its checksums were checked in that call.
//
// # Recovery
//
// The caller knows from its manifest that [start, end) was durable. Whatever is
// at or above end is cut; whatever is missing or broken below makes Open refuse
// with *Damaged. Rolled files are taken by their footers, without reading their
// batches; the active one is read in full. A broken footer or index is rebuilt
// from the batches, if these are intact; an index that a read finds broken beside
// broken batches is rebuilt once Repair has put these right.
//
// # Concurrency
//
// Append, Roll, Drop, Reset, Remove, Sync and Close belong to one writer. Read,
// ReadAt, Start, End and Segments may run beside it and beside each other.
package segment
