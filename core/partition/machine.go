package partition

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/choice"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// Limits bound memory, and say when a leader rolls segments. Apply reads none of
// them. Zero fields take the default.
type Limits struct {
	HotBytes      int           // recent batches kept for readers, 4 MiB
	Waiting       int           // publishes and, apart from them, readers waiting, 4,096 each
	MaxProducers  int           // remembered; a full table refuses new ones, 10,000
	SegmentBytes  int64         // size at which the leader rolls, 64 MiB
	SegmentAge    time.Duration // log time since a segment's first batch at which it does, 1 h
	MaxBatchBytes int           // of one append, 8 MiB
}

// Config is one replica's.
type Config struct {
	Group     model.GroupID
	Topic     model.TopicID
	Partition model.Partition
	Limits    Limits
	Unpack    batch.Unpack // for filters over packed batches; nil: such messages are all wanted
	Choice    choice.Func
}

func (l Limits) withDefaults() Limits {
	set(&l.HotBytes, 4<<20)
	set(&l.Waiting, 4096)
	set(&l.MaxProducers, 10_000)
	set(&l.SegmentBytes, 64<<20)
	set(&l.SegmentAge, time.Hour)
	set(&l.MaxBatchBytes, model.MaxRequestBytes)
	return l
}

func set[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// Machine is one replica of a partition; it implements group.Machine.
type Machine struct {
	cfg  Config
	st   state
	hot  hot
	lead *leader // nil unless leading

	readers  map[group.Ref]*reader
	parked   []*reader          // waiting at the high watermark, in order of arrival
	indexing []*reader          // waiting for ReadIndexDone, in order of arrival
	stored   map[uint64]*reader // waiting for ReadDone, by the id given to Host
	lastRead uint64
	wakeAt   model.Mono // the moment last asked for
}

var _ group.Machine = (*Machine)(nil)

// New makes an empty partition: next offset 0, one empty segment.
func New(cfg Config) *Machine {
	cfg.Limits = cfg.Limits.withDefaults()
	return &Machine{
		cfg: cfg, st: newState(), hot: hot{limit: cfg.Limits.HotBytes},
		readers: map[group.Ref]*reader{}, stored: map[uint64]*reader{}, wakeAt: model.Never,
	}
}

// Next is the offset the next message gets, as far as this replica has applied.
func (m *Machine) Next() model.Offset { return m.st.next }

// HighWatermark is the exclusive bound of what readers may see; it is Next.
func (m *Machine) HighWatermark() model.Offset { return m.st.next }

// LogStart is the first offset still there; Next when there is none.
func (m *Machine) LogStart() model.Offset { return m.st.logStart() }

// LastAppendTime is the last batch's stamp; 0 before the first.
func (m *Machine) LastAppendTime() model.Wall { return m.st.lastAppend }

// LogTime is the greatest time in the log.
func (m *Machine) LogTime() model.Wall { return m.st.clock.time }

// Bytes is the size of the batches in [LogStart, Next).
func (m *Machine) Bytes() uint64 { return m.st.bytes }

// Segments lists the segments, the active one last.
func (m *Machine) Segments() []Segment { return slices.Clone(m.st.segments) }

// Producers is the number of producers remembered.
func (m *Machine) Producers() int { return m.st.producers.len() }

// HotBytes is the memory taken by recent batches.
func (m *Machine) HotBytes() int { return m.hot.bytes }

// Waiting counts the requests held: publishes and fences, and readers.
func (m *Machine) Waiting() (appends, readers int) {
	if m.lead != nil {
		appends = m.lead.waiting + len(m.lead.early)
	}
	return appends, len(m.readers)
}

// Hash is xxh64 of Snapshot: equal on replicas that applied the same entries.
func (m *Machine) Hash() uint64 { return xxhash.Sum64(m.Snapshot()) }

// Snapshot implements group.Machine.
func (m *Machine) Snapshot() []byte { return wire.Encode(&m.st) }

// Restore implements group.Machine. After an error the state is as it was.
func (m *Machine) Restore(snapshot []byte) error {
	var s state
	if err := wire.Decode(snapshot, &s); err != nil {
		return fmt.Errorf("restore partition %d of topic %d: %w", m.cfg.Partition, m.cfg.Topic, err)
	}
	m.st = s
	m.hot.clear()
	return nil
}

// Apply implements group.Machine. An entry that is neither a batch nor a known
// command breaks an invariant: going on without it would part the replicas.
func (m *Machine) Apply(h group.Host, e group.Entry) {
	if isBatch(e.Data) {
		m.applyBatch(h, e)
		return
	}
	var c command
	if err := wire.Decode(e.Data, &c); err != nil {
		panic(fmt.Sprintf("partition group %d cannot apply entry %d of term %d: %v",
			m.cfg.Group, e.Index, e.Term, err))
	}
	m.st.clock.move(c.at, c.untrusted)
	switch c.kind {
	case cmdFence:
		m.st.fence(c.producer, c.epoch)
	case cmdConfigure:
		if c.settings.version > m.st.settings.version {
			m.st.settings = c.settings
		}
	case cmdRoll:
		if m.st.roll(c.offset) {
			h.SegmentRoll(c.offset)
		}
	case cmdTrim:
		if m.st.trim(c.offset) {
			m.hot.dropBelow(c.offset)
			h.SegmentDrop(c.offset)
		}
	case cmdExpire:
		m.st.producers.expire(minus(m.st.clock.aged, model.ProducerExpiry))
	}
	m.settle(h, e.Data, true)
}

func (m *Machine) applyBatch(h group.Host, e group.Entry) {
	v, err := batch.ParseHeader(e.Data)
	if err != nil || len(v) != len(e.Data) {
		panic(fmt.Sprintf("partition group %d cannot apply entry %d of term %d: not one batch: %v",
			m.cfg.Group, e.Index, e.Term, err))
	}
	ok := m.st.acceptBatch(v)
	if ok {
		m.hot.push(v)
		h.SegmentAppend(v)
	}
	m.settle(h, e.Data, ok)
	if ok {
		m.wakeParked(h)
	}
}

// Handle implements group.Machine.
func (m *Machine) Handle(h group.Host, ref group.Ref, req call.Request) {
	switch req := req.(type) {
	case *call.Append:
		m.append(h, ref, req)
	case *call.Fence:
		m.fence(h, ref, req)
	case *call.Read:
		m.read(h, ref, req)
	case *call.Locate:
		m.locate(h, ref, req)
	default:
		h.Reply(ref, nil, model.Errorf(model.Unimplemented, "a partition does not serve %T", req))
	}
}

// Cancel implements group.Machine. A publish under way stays in the log's way;
// only nobody is told.
func (m *Machine) Cancel(h group.Host, ref group.Ref) {
	if r := m.readers[ref]; r != nil {
		m.forget(r)
		return
	}
	if m.lead != nil {
		m.lead.cancel(ref)
	}
}

// LeaderStart implements group.Machine.
func (m *Machine) LeaderStart(h group.Host) {
	m.lead = newLeader()
	m.lead.base, m.lead.baseMono = m.st.clock.time, h.Now()
	if t, ok := h.Catalog().TopicByID(m.cfg.Topic); ok {
		m.lead.base = max(m.lead.base, t.Created)
	}
	m.lead.rebuild(&m.st)
	m.lead.began = m.lead.next
	m.tend(h)
	m.arm(h)
}

// LeaderStop implements group.Machine.
func (m *Machine) LeaderStop(h group.Host) {
	l := m.lead
	m.lead = nil
	if l == nil {
		return
	}
	l.dropEarly(h)
	for _, p := range l.live() {
		for _, ref := range p.refs {
			if ref == nobody {
				continue
			}
			h.Reply(ref, nil, unknownOutcome("leadership was lost while the batch was being replicated"))
		}
	}
	for _, ref := range slices.Sorted(maps.Keys(m.readers)) {
		if r := m.readers[ref]; r.led {
			m.finish(h, r, nil, h.NotLeader())
		}
	}
	m.wakeAt = model.Never
	h.Wake(model.Never)
}

// CatalogChanged implements group.Machine.
func (m *Machine) CatalogChanged(h group.Host) {
	if m.lead != nil && !m.configure(h) {
		m.lead.tendAt = min(m.lead.tendAt, h.Now().Add(tendMin))
		m.wake(h, m.lead.tendAt)
	}
}

// Tick implements group.Machine.
func (m *Machine) Tick(h group.Host) {
	m.wakeAt = model.Never
	m.expireReaders(h)
	if l := m.lead; l != nil {
		m.expireEarly(h)
		if l.tendAt <= h.Now() {
			m.tend(h)
		}
	}
	m.arm(h)
}

// wake asks for a Tick at the moment unless an earlier one is on its way.
func (m *Machine) wake(h group.Host, at model.Mono) {
	if at < m.wakeAt {
		m.wakeAt = at
		h.Wake(at)
	}
}

// arm asks for the next Tick that anything here needs.
func (m *Machine) arm(h group.Host) {
	at := model.Never
	if m.lead != nil {
		at = m.lead.tendAt
		if len(m.lead.early) > 0 {
			at = min(at, m.lead.early[0].until)
		}
	}
	for _, r := range m.parked {
		at = min(at, r.until)
	}
	for _, r := range m.indexing {
		at = min(at, r.indexUntil)
	}
	m.wake(h, at)
}

func unknownOutcome(why string) *model.Error {
	return model.Reasoned(model.Unavailable, model.ReasonUnknownOutcome, retrySoon,
		"%s; whether it was stored is unknown: send it again with the same sequence", why)
}

func throttled(retry time.Duration, why string) *model.Error {
	return model.Reasoned(model.ResourceExhausted, model.ReasonThrottled, retry, "%s; try again later", why)
}

// Hints at when to try again: retrySoon when only a moment's work stands in the
// way, retryLater when it takes an expiry.
const (
	retrySoon  = 50 * time.Millisecond
	retryLater = time.Second
)
