package session

import (
	"slices"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// ConsumerConfig is fixed for a consumer's life. Zero fields take the default.
type ConsumerConfig struct {
	Subscription string // topic/name
	// Member names this consumer within the subscription; empty: the broker
	// names it. A static member that comes back within its session keeps its place:
	// Leave acks what is due and ends without ending the session.
	Member model.MemberID
	Static bool
	// Shared is the subscription's mode: messages are acked one by one.
	Shared bool
	// MemberIsNew says that the name was drawn for this consumer: no earlier one
	// of that name can have left requests on their way.
	MemberIsNew bool

	MaxMessages uint32        // of one pull, 1,000
	MaxBytes    uint32        // of one pull, 4 MiB
	Wait        time.Duration // of one pull when there is nothing, 5 s; negative: none
	MaxBuffered int           // messages held and not yet processed, 2,000
	LowMark     int           // pulls again below it, half of MaxBuffered

	AckInterval    time.Duration // from the first processed message to the ack, 100 ms; negative: none
	AckMessages    int           // processed messages that make an ack due at once, a quarter of MaxBuffered, at least 500
	SessionTimeout time.Duration // the subscription's; heartbeats come each third of it, 10 s
	TryTimeout     time.Duration // of one request, beside Wait, 5 s
	MinBackoff     time.Duration // 20 ms
	MaxBackoff     time.Duration // 2 s
	Seed           uint64        // of jitter

	Unpack batch.Unpack // nil: packed batches are an error
}

func (c ConsumerConfig) withDefaults() ConsumerConfig {
	def(&c.MaxMessages, 1000)
	def(&c.MaxBytes, 4<<20)
	def(&c.Wait, 5*time.Second)
	def(&c.MaxBuffered, 2000)
	def(&c.LowMark, max(c.MaxBuffered/2, 1))
	def(&c.AckInterval, 100*time.Millisecond)
	def(&c.AckMessages, max(c.MaxBuffered/4, 500))
	def(&c.SessionTimeout, model.DefaultSessionTimeout)
	def(&c.TryTimeout, 5*time.Second)
	def(&c.MinBackoff, 20*time.Millisecond)
	def(&c.MaxBackoff, 2*time.Second)
	c.Wait = max(c.Wait, 0)
	c.AckInterval = max(c.AckInterval, 0)
	c.LowMark = min(c.LowMark, c.MaxBuffered)
	return c
}

// Delivery is a message handed out.
type Delivery struct {
	Partition  model.Partition
	Offset     model.Offset
	Message    batch.Message
	Attempt    uint32 // from 1, as far as the broker counts it
	AppendTime model.Wall
	Generation model.Generation // of the pull that delivered it
	Lease      uint64           // mode shared: names this delivery
	run        uint64
}

// Consumer is one member of a subscription.
type Consumer struct {
	cfg     ConsumerConfig
	backoff backoff
	lastID  uint64
	member  model.MemberID

	pull      task
	pulledAt  model.Mono // when the pull under way was made
	empties   int        // pulls in a row that brought nothing and did not wait
	sequence  uint64     // of the pull under way or next, from 1
	restart   bool       // the next pull is 1 again: from the cursors
	strays    model.Mono // until then a pull given up may still reach a coordinator
	doubt     bool       // one may have reached it: see arrive
	begun     bool       // Poll was called
	beat      task
	plain     bool       // the next heartbeat extends no lease: the last one was refused
	lastBeat  model.Mono // when the last request that renewed the session was made
	ack       task
	acking    []acking // what the ack under way says
	pulls     uint64   // made
	nack      task
	nacks     []named // to be given back
	nacking   int     // of them, in the nack under way
	extend    task
	extends   []named // to be extended by request
	extending int
	claims    claims           // mode shared
	newest    model.Generation // mode shared: of all pulls
	ackMore   bool             // something ackable did not fit into it
	leave     task
	leaving   bool
	left      bool
	cancelAt  model.Mono // when the pull under way is given up, leaving; Never: it was, or there is none

	buffer  []Delivery // received and not taken, in order of arrival
	tracks  map[model.Partition]*track
	order   []*track // tracks by partition
	runs    uint64
	held    int          // received and not processed: buffered or taken
	unacked int          // processed since the last ack was made
	ackDue  model.Mono   // Never: nothing to ack
	skipped []call.Range // told by the broker, for the driver to report
	cancels []uint64
	failure *model.Error // why pulls keep failing
	fatal   *model.Error
}

// track is what a consumer knows about one partition. A run is a stretch of
// deliveries without a step back to another generation: after a seek back, or
// when the partition was lost and comes again, a new one begins, and what is
// processed of the old one no longer acks anything beyond what upTo says.
type track struct {
	partition  model.Partition
	run        uint64           // 0: nothing is expected to go on
	received   model.Offset     // the next offset of the run
	generation model.Generation // of the latest pull of the run
	fence      model.Generation // pulls of generations below it delivered nothing that counts
	// handed holds what was delivered in this run and is not yet ackable, in order.
	handed []handed

	ackable    bool // upTo is to be acked, with ackedBy
	upTo       model.Offset
	generated  model.Generation // of the pull that delivered the message below upTo
	processing int

	deaf   int    // nacks queued or under way
	deafTo uint64 // pulls up to this number may have been answered before a nack
}

type handed struct {
	offset     model.Offset
	generation model.Generation
	processed  bool
}

// NewConsumer makes a consumer; its first Poll pulls.
func NewConsumer(cfg ConsumerConfig) *Consumer {
	cfg = cfg.withDefaults()
	return &Consumer{
		cfg: cfg, backoff: newBackoff(cfg.MinBackoff, cfg.MaxBackoff, cfg.Seed), member: cfg.Member,
		sequence: 1, tracks: map[model.Partition]*track{}, ackDue: model.Never,
		cancelAt: model.Never,
	}
}

// Member is this consumer's id; empty until the broker has named it.
func (c *Consumer) Member() model.MemberID { return c.member }

// Err is why nothing will be delivered any more; nil while there is hope.
func (c *Consumer) Err() *model.Error { return c.fatal }

// Trouble is why the latest pull failed; nil after one that did not.
func (c *Consumer) Trouble() *model.Error { return c.failure }

// Left says that Leave is done and nothing more is to be sent.
func (c *Consumer) Left() bool { return c.left }

// Held is the number of messages received and not processed.
func (c *Consumer) Held() int { return c.held }

// Buffered is the number of messages that Take would return.
func (c *Consumer) Buffered() int { return len(c.buffer) }

// Take hands out at most limit messages, in order per partition; 0: all there are.
func (c *Consumer) Take(limit int) []Delivery {
	if limit <= 0 || limit > len(c.buffer) {
		limit = len(c.buffer)
	}
	out := c.buffer[:limit:limit]
	c.buffer = c.buffer[limit:]
	for i := range out {
		if c.cfg.Shared {
			break
		}
		c.tracks[out[i].Partition].processing++
	}
	return out
}

// Skipped returns the ranges the broker said were lost to retention before this
// subscription read them, since the last call.
func (c *Consumer) Skipped() []call.Range {
	out := c.skipped
	c.skipped = nil
	return out
}

// Cancels returns requests whose answer is not wanted any more, since the last
// call. The driver may drop them or let them run; it must still call Done.
func (c *Consumer) Cancels() []uint64 {
	out := c.cancels
	c.cancels = nil
	return out
}

// Processed says that a message taken needs no redelivery. In mode ordered it is
// acked once all those before it in its partition are processed.
func (c *Consumer) Processed(now model.Mono, d Delivery) {
	if c.cfg.Shared {
		c.processedShared(now, &d)
		return
	}
	t := c.tracks[d.Partition]
	if t == nil || t.processing == 0 {
		return
	}
	t.processing--
	c.held--
	if t.run != d.run {
		return // taken before a seek, or before the partition went to another
	}
	i, ok := slices.BinarySearchFunc(t.handed, d.Offset, func(h handed, o model.Offset) int {
		switch {
		case h.offset < o:
			return -1
		case h.offset > o:
			return 1
		}
		return 0
	})
	if !ok {
		return
	}
	t.handed[i].processed = true
	c.advance(now, t)
}

// advance makes ackable what has nothing unprocessed before it.
func (c *Consumer) advance(now model.Mono, t *track) {
	n := 0
	for n < len(t.handed) && t.handed[n].processed {
		t.upTo, t.generated, t.ackable = t.handed[n].offset+1, t.handed[n].generation, true
		n++
	}
	if n == 0 {
		return
	}
	t.handed = t.handed[n:]
	c.unacked += n
	c.ackDue = min(c.ackDue, now.Add(c.cfg.AckInterval))
	if c.unacked >= c.cfg.AckMessages {
		c.ackDue = now
	}
}

// FlushAcks makes the ack of what was processed due at once.
func (c *Consumer) FlushAcks(now model.Mono) {
	if c.ackDue != model.Never {
		c.ackDue = min(c.ackDue, now)
	}
}

// Drop forgets what was received and not taken: after a seek of one's own. The
// next pull begins where the broker says.
func (c *Consumer) Drop() {
	c.dropShared(func(*Delivery) bool { return c.cfg.Shared })
	for _, t := range c.order {
		c.dropRun(t)
	}
}

// Leave acks what was processed, ends the session and makes the consumer Left.
// What was not processed goes to another member at once.
func (c *Consumer) Leave(now model.Mono) {
	if c.leaving {
		return
	}
	c.leaving = true
	c.Drop()
	c.FlushAcks(now)
	if c.pull.id != 0 {
		c.cancelAt = max(now, c.pulledAt.Add(arrivalTime))
	}
	if c.fatal != nil || (c.member == "" && c.pull.id == 0) {
		c.left = true // there is no session to end
	}
	c.stay()
}

// Poll returns the requests to make now.
func (c *Consumer) Poll(now model.Mono) []Send {
	var sends []Send
	if !c.begun {
		c.begun = true
		if c.cfg.Member != "" && !c.cfg.MemberIsNew {
			c.strays, c.doubt = now.Add(strayTime), true
		}
	}
	if c.left || (c.fatal != nil && !c.leaving) {
		return nil
	}
	if c.ackReady() <= now {
		sends = append(sends, c.sendAck(now))
	}
	if c.nackReady() <= now {
		sends = append(sends, c.sendNack(now))
	}
	if c.extendReady() <= now {
		sends = append(sends, c.sendExtend(now))
	}
	if c.pullReady() <= now {
		if c.restart {
			c.restart, c.sequence = false, 1
		}
		c.pull.id = c.nextID()
		c.pulls++
		c.pulledAt, c.lastBeat = now, now
		sends = append(sends, c.send(c.pull.id, c.cfg.Wait, &call.Pull{
			Subscription: c.cfg.Subscription, Member: c.member, Static: c.cfg.Static, PullSequence: c.sequence,
			MaxMessages: min(c.cfg.MaxMessages, uint32(c.cfg.MaxBuffered-c.held)), MaxBytes: c.cfg.MaxBytes,
			Wait: c.cfg.Wait,
		}))
	}
	if c.beatReady() <= now {
		c.beat.id = c.nextID()
		c.lastBeat = now
		r := &call.ExtendLease{Subscription: c.cfg.Subscription, Member: c.member, Generation: c.latest()}
		r.Offsets, r.Deliveries = c.leased()
		sends = append(sends, c.send(c.beat.id, 0, r))
	}
	if c.cancelAt <= now {
		c.cancels, c.cancelAt = append(c.cancels, c.pull.id), model.Never
	}
	if c.leaveReady() <= now {
		c.leave.id = c.nextID()
		sends = append(sends, c.send(c.leave.id, 0, &call.LeaveSubscription{
			Subscription: c.cfg.Subscription, Member: c.member,
		}))
	}
	return sends
}

func (c *Consumer) send(id uint64, wait time.Duration, r call.Client) Send {
	return Send{ID: id, Call: r, Deadline: wait + c.cfg.TryTimeout, Route: Route{Subscription: c.cfg.Subscription}}
}

func (c *Consumer) nextID() uint64 {
	c.lastID++
	return c.lastID
}

// Next is when to call Poll again, unless Processed, Leave or Done comes first.
func (c *Consumer) Next() model.Mono {
	if c.left || (c.fatal != nil && !c.leaving) {
		return model.Never
	}
	return min(c.ackReady(), c.nackReady(), c.extendReady(), c.pullReady(), c.beatReady(), c.leaveReady(), c.cancelAt)
}

func (c *Consumer) pullReady() model.Mono {
	if c.leaving || c.fatal != nil || c.held >= c.cfg.LowMark {
		return model.Never
	}
	return c.pull.next()
}

// beatReady: a pull in flight renews the session when it arrives and while it
// waits, but whether it arrived is not known before its answer.
func (c *Consumer) beatReady() model.Mono {
	if c.leaving || c.member == "" || c.beat.id != 0 {
		return model.Never
	}
	return max(c.beat.at, c.lastBeat.Add(c.cfg.SessionTimeout/3))
}

func (c *Consumer) ackReady() model.Mono {
	if c.ack.id != 0 || c.ackDue == model.Never {
		return model.Never
	}
	return max(c.ackDue, c.ack.at)
}

func (c *Consumer) leaveReady() model.Mono {
	if c.cfg.Static || !c.settled() {
		return model.Never
	}
	return c.leave.next()
}

// settled says that nothing keeps a consumer that leaves. The pull under way ends
// first: until it has, it could join again.
func (c *Consumer) settled() bool {
	return c.leaving && len(c.nacks) == 0 && c.ackDue == model.Never && c.ack.id == 0 && c.pull.id == 0
}

// stay ends a static member without ending its session: it is expected back
// within the session timeout, and keeps its place until then.
func (c *Consumer) stay() {
	if c.cfg.Static && c.settled() {
		c.left = true
	}
}

// leased names the last message held of each partition: with it, the leases of
// all before it are extended, for as long as this consumer works on them. In
// mode shared it names all.
func (c *Consumer) leased() (out []call.PartitionOffset, deliveries []uint64) {
	if c.cfg.Shared {
		return c.claimed()
	}
	for _, t := range c.order {
		if n := len(t.handed); n > 0 && !c.plain {
			out = append(out, call.PartitionOffset{Partition: t.partition, Offset: t.handed[n-1].offset})
		}
	}
	return out, nil
}

// latest is the newest generation this consumer was told.
func (c *Consumer) latest() (g model.Generation) {
	g = c.newest
	for _, t := range c.order {
		g = max(g, t.generation)
	}
	return g
}

// Done brings a request's answer; see the package comment.
func (c *Consumer) Done(now model.Mono, id uint64, result call.ClientResult, err *model.Error) {
	switch id {
	case 0:
	case c.pull.id:
		c.pulled(now, result, err)
	case c.ack.id:
		c.acked(now, result, err)
	case c.nack.id:
		c.nacked(now, err)
	case c.extend.id:
		c.extended(now, err)
	case c.beat.id:
		c.beaten(now, err)
	case c.leave.id:
		c.leaveDone(now, err)
	}
	c.stay()
}

func (c *Consumer) leaveDone(now model.Mono, err *model.Error) {
	if err != nil && judge(err) != final && c.leave.failures < 3 {
		c.leave.failed(now, &c.backoff, err)
		return
	}
	c.left = true // at worst the session ends by its timeout
}

// beaten handles a heartbeat's answer.
func (c *Consumer) beaten(now model.Mono, err *model.Error) {
	if err == nil {
		c.plain = false
		c.beat.succeeded()
		return
	}
	c.beat.failed(now, &c.backoff, err)
	if held, _ := c.leased(); err.Reason == model.ReasonFenced && len(held) > 0 {
		c.plain = true // the leases may have ended, or the session: ask for the session alone
		return
	}
	if judge(err) == final {
		// The session is over: others own the partitions by now. The next pull joins again.
		c.Drop()
		c.restart = true
	}
}

func (c *Consumer) pulled(now model.Mono, result call.ClientResult, err *model.Error) {
	if c.leaving {
		c.pull.id, c.cancelAt = 0, model.Never
		if r, ok := result.(*call.PullResult); ok && err == nil {
			c.member = r.Member
		}
		c.left = c.left || c.member == ""
		return
	}
	r, ok := result.(*call.PullResult)
	if err == nil && !ok {
		err = answered(nil)
	}
	if err == nil {
		err = c.receive(now, r)
	}
	if err == nil {
		c.pull.succeeded()
		c.failure = nil
		c.member = r.Member
		if c.doubt && len(r.Ranges) == 0 && c.sequence > 1 {
			// Nothing more to come, or given out to a pull that was given up.
			c.restart, c.doubt = true, now < c.strays
		}
		c.sequence++
		c.pace(now, len(r.Ranges) == 0)
		return
	}
	c.pull.failed(now, &c.backoff, err)
	c.failure = err
	switch {
	case err.Reason == model.ReasonFenced:
		c.Drop()
		c.restart = true
	case err.Field == "pull_sequence" && c.sequence > 1:
		c.restart = true // an earlier pull that was given up arrived late
	case judge(err) == final || err.Code == model.DataLoss:
		c.fatal = err
		c.Drop()
	case judge(err) == open:
		c.strays, c.doubt = now.Add(strayTime), true
	}
}

// strayTime is how long a request that was given up may still be on its way.
const strayTime = time.Minute

// arrivalTime is how long a pull is given to reach the coordinator before it is
// given up for a leave: one that arrives after the leave joins again, and holds
// partitions until its session ends.
const arrivalTime = 300 * time.Millisecond

// maxPace is the longest pause between pulls that bring nothing and do not wait.
const maxPace = 250 * time.Millisecond

// pace keeps a consumer from asking in a tight loop when the broker does not wait.
func (c *Consumer) pace(now model.Mono, empty bool) {
	if !empty || (c.cfg.Wait > 0 && now.Sub(c.pulledAt) >= c.cfg.Wait/2) {
		c.empties = 0
		return
	}
	c.empties++
	c.pull.at = now.Add(min(c.backoff.after(c.empties, nil), maxPace))
}
