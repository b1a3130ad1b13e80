package replica

import (
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// window is raft's Storage: the durable log's tail in memory, updated when the
// journal reports durability and never otherwise.
//
// Invariants: entries are contiguous from first; base = (first-1, baseTerm);
// first-1 <= applied, so that nothing unapplied is ever missing.
type window struct {
	hard     *pb.HardState
	conf     *pb.ConfState // as given to raft at start only
	first    uint64
	baseTerm uint64
	entries  []*pb.Entry
	bytes    int
	snapshot func() (*pb.Snapshot, error)
}

var _ raft.Storage = (*window)(nil)

// InitialState implements raft.Storage.
func (w *window) InitialState() (*pb.HardState, *pb.ConfState, error) { return w.hard, w.conf, nil }

// FirstIndex implements raft.Storage.
func (w *window) FirstIndex() (uint64, error) { return w.first, nil }

// LastIndex implements raft.Storage.
func (w *window) LastIndex() (uint64, error) { return w.last(), nil }

func (w *window) last() uint64 { return w.first + uint64(len(w.entries)) - 1 }

func (w *window) lastTerm() uint64 {
	if n := len(w.entries); n > 0 {
		return w.entries[n-1].GetTerm()
	}
	return w.baseTerm
}

// Term implements raft.Storage.
func (w *window) Term(i uint64) (uint64, error) {
	switch {
	case i+1 == w.first:
		return w.baseTerm, nil
	case i+1 < w.first:
		return 0, raft.ErrCompacted
	case i > w.last():
		return 0, raft.ErrUnavailable
	}
	return w.entries[i-w.first].GetTerm(), nil
}

// Entries implements raft.Storage: [lo, hi), at least one, about maxSize bytes.
func (w *window) Entries(lo, hi, maxSize uint64) ([]*pb.Entry, error) {
	if lo < w.first {
		return nil, raft.ErrCompacted
	}
	if hi > w.last()+1 {
		return nil, raft.ErrUnavailable
	}
	es := w.entries[lo-w.first : hi-w.first]
	size := uint64(0)
	for i, e := range es {
		size += uint64(entrySize(e))
		if i > 0 && size > maxSize {
			es = es[:i]
			break
		}
	}
	return append(make([]*pb.Entry, 0, len(es)), es...), nil
}

// Snapshot implements raft.Storage.
func (w *window) Snapshot() (*pb.Snapshot, error) { return w.snapshot() }

// append replaces everything from the first given index on.
func (w *window) append(es []*pb.Entry) {
	if len(es) == 0 {
		return
	}
	at := es[0].GetIndex()
	if at > w.last()+1 || at < w.first {
		panic("durable entries leave a hole in the log")
	}
	for _, e := range w.entries[at-w.first:] {
		w.bytes -= entrySize(e)
	}
	// The old tail's backing array may be shared with raft: append to a capped slice.
	keep := w.entries[: at-w.first : at-w.first]
	if uint64(len(w.entries)) == at-w.first {
		keep = w.entries // plain append at the end; nobody reads beyond its own length
	}
	w.entries = append(keep, es...)
	for _, e := range es {
		w.bytes += entrySize(e)
	}
}

// reset forgets the log: a snapshot stands in for everything up to index.
func (w *window) reset(index, term uint64) {
	w.first, w.baseTerm, w.entries, w.bytes = index+1, term, nil, 0
}

// evict drops entries from the front, none above applied, until the window is
// within maxEntries and maxBytes.
func (w *window) evict(applied uint64, maxEntries, maxBytes int) {
	n := 0
	for n < len(w.entries) && w.first+uint64(n) <= applied &&
		(len(w.entries)-n > maxEntries || w.bytes > maxBytes) {
		w.bytes -= entrySize(w.entries[n])
		n++
	}
	if n == 0 {
		return
	}
	w.baseTerm = w.entries[n-1].GetTerm()
	w.first += uint64(n)
	clear(w.entries[:n]) // release the data though the array lives on
	w.entries = w.entries[n:]
	if cap(w.entries) > 64 && len(w.entries)*4 < cap(w.entries) {
		w.entries = append(make([]*pb.Entry, 0, 2*len(w.entries)+16), w.entries...)
	}
}

func entrySize(e *pb.Entry) int { return len(e.GetData()) + 64 }
