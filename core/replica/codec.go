package replica

import (
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tapedeck/tapedeck/core/wire"
)

// The codec of raft's own structures. Protobuf's would do, but costs two to
// three times as much per message, and its text and unknown fields are not ours
// to keep stable. Absent and zero fields are the same to raft.

// entry bundles an entry with the numbers it points to: one allocation.
type entry struct {
	pb.Entry
	term, index uint64
	kind        pb.EntryType
}

func newEntry(kind pb.EntryType, term, index uint64, data []byte) *pb.Entry {
	e := &entry{term: term, index: index, kind: kind}
	e.Term, e.Index, e.Type, e.Data = &e.term, &e.index, &e.kind, data
	return &e.Entry
}

func codeEntry(c *wire.Codec, e **pb.Entry) {
	var (
		kind        uint32
		term, index uint64
		data        []byte
	)
	if !c.Decoding {
		kind, term, index, data = uint32((*e).GetType()), (*e).GetTerm(), (*e).GetIndex(), (*e).GetData()
	}
	wire.Uint(c, &kind)
	wire.Uint(c, &term)
	wire.Uint(c, &index)
	c.Bytes(&data)
	if c.Decoding {
		if kind > uint32(pb.EntryConfChangeV2) {
			c.Fail(fmt.Errorf("entry type %d is unknown", kind))
		}
		*e = newEntry(pb.EntryType(kind), term, index, data)
	}
}

func codeConf(c *wire.Codec, v **pb.ConfState) {
	if c.Decoding {
		*v = &pb.ConfState{}
	}
	ids := func(l *[]uint64) {
		wire.Slice(c, l, func(c *wire.Codec, id *uint64) { wire.Uint(c, id) })
	}
	ids(&(*v).Voters)
	ids(&(*v).Learners)
	ids(&(*v).VotersOutgoing)
	ids(&(*v).LearnersNext)
	leave := (*v).GetAutoLeave()
	c.Bool(&leave)
	if c.Decoding {
		(*v).AutoLeave = &leave
	}
}

func codeSnapshot(c *wire.Codec, v **pb.Snapshot) {
	there := *v != nil && (*v).GetMetadata().GetIndex() != 0
	c.Bool(&there)
	if !there {
		*v = nil
		return
	}
	if c.Decoding {
		*v = &pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: new(uint64), Term: new(uint64)}}
	}
	m := (*v).Metadata
	wire.Uint(c, m.Index)
	wire.Uint(c, m.Term)
	codeConf(c, &m.ConfState)
	c.Bytes(&(*v).Data)
}

// Message is a raft message with the codec.
type Message struct{ *pb.Message }

// Code implements wire.Coder.
func (m *Message) Code(c *wire.Codec) {
	if c.Decoding {
		m.decode(c)
		return
	}
	v := m.Message
	c.Reserve(messageSize(v))
	kind := uint32(v.GetType())
	wire.Uint(c, &kind)
	for _, f := range fields(v) {
		n := uint64(0)
		if *f != nil {
			n = **f
		}
		wire.Uint(c, &n)
	}
	reject := v.GetReject()
	c.Bool(&reject)
	c.Bytes(&v.Context)
	wire.Slice(c, &v.Entries, codeEntry)
	codeSnapshot(c, &v.Snapshot)
}

const fieldCount = 8

// fields lists a message's numbers in the order of the format.
func fields(v *pb.Message) [fieldCount]**uint64 {
	return [fieldCount]**uint64{
		&v.To, &v.From, &v.Term, &v.LogTerm, &v.Index, &v.Commit, &v.Vote, &v.RejectHint,
	}
}

// message bundles a message with the numbers it points to: one allocation.
type message struct {
	pb.Message
	kind   pb.MessageType
	values [fieldCount]uint64
	reject bool
}

func (m *Message) decode(c *wire.Codec) {
	v := &message{}
	m.Message = &v.Message
	var kind uint32
	wire.Uint(c, &kind)
	if kind > uint32(pb.MsgForgetLeader) {
		c.Fail(fmt.Errorf("raft message type %d is unknown", kind))
	}
	v.kind = pb.MessageType(kind)
	v.Type = &v.kind
	for i, f := range fields(&v.Message) {
		if wire.Uint(c, &v.values[i]); v.values[i] != 0 {
			*f = &v.values[i]
		}
	}
	if c.Bool(&v.reject); v.reject {
		v.Reject = &v.reject
	}
	c.Bytes(&v.Context)
	wire.Slice(c, &v.Entries, codeEntry)
	codeSnapshot(c, &v.Snapshot)
}

// messageSize is about what a message takes, and not less if it carries entries alone.
func messageSize(v *pb.Message) int {
	size := 64
	for _, e := range v.Entries {
		size += entrySize(e)
	}
	return size
}

// hardState is pb.HardState by value.
type hardState struct{ Term, Vote, Commit uint64 }

func (h hardState) proto() *pb.HardState {
	return &pb.HardState{Term: &h.Term, Vote: &h.Vote, Commit: &h.Commit}
}

func (h *hardState) code(c *wire.Codec) {
	wire.Uint(c, &h.Term)
	wire.Uint(c, &h.Vote)
	wire.Uint(c, &h.Commit)
}

// ready is the payload of one journal write: one Ready of one group.
type ready struct {
	hasHard  bool
	hard     hardState
	snapshot *pb.Snapshot
	entries  []*pb.Entry
}

// Code implements wire.Coder.
func (r *ready) Code(c *wire.Codec) {
	c.Version(1)
	c.Bool(&r.hasHard)
	if r.hasHard {
		r.hard.code(c)
	}
	codeSnapshot(c, &r.snapshot)
	wire.Slice(c, &r.entries, codeEntry)
}

// base is what a generation of the journal starts with for a group: hard state,
// applied point, membership there, and every entry above it.
type base struct {
	hard                 hardState
	applied, appliedTerm uint64
	conf                 *pb.ConfState
	entries              []*pb.Entry
}

// Code implements wire.Coder.
func (b *base) Code(c *wire.Codec) {
	c.Version(1)
	c.Reserve(messageSize(&pb.Message{Entries: b.entries}))
	b.hard.code(c)
	wire.Uint(c, &b.applied)
	wire.Uint(c, &b.appliedTerm)
	codeConf(c, &b.conf)
	wire.Slice(c, &b.entries, codeEntry)
}
