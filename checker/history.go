package checker

import (
	"fmt"
	"math"
	"strconv"

	"github.com/tapedeck/tapedeck/core/model"
)

// Moment is nanoseconds on the clock of the history.
type Moment int64

// Open is the return of an operation that was never answered.
const Open Moment = math.MaxInt64

// MarshalJSON writes Open as null.
func (m Moment) MarshalJSON() ([]byte, error) {
	if m == Open {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, int64(m), 10), nil
}

// Outcome is what a client knows of its call.
type Outcome string

// Outcomes.
const (
	OutcomeOK      Outcome = "ok"      // answered yes
	OutcomeRefused Outcome = "refused" // answered no: it did not happen and never will
	OutcomeUnknown Outcome = "unknown" // it may have happened, or may yet
)

// ClientID numbers the clients of a history; one client may have several calls open.
type ClientID uint32

// Op is one call of one client. Exactly one of the pointers is set; it holds the
// arguments and, when the outcome is OK, the result.
type Op struct {
	Client  ClientID     `json:"client"`
	Call    Moment       `json:"call"`
	Return  Moment       `json:"return"` // Open: never answered
	Outcome Outcome      `json:"outcome"`
	Reason  model.Reason `json:"reason,omitempty"` // of a refusal or an unknown outcome

	Publish       *Publish       `json:"publish,omitempty"`
	Fetch         *Fetch         `json:"fetch,omitempty"`
	Pull          *Pull          `json:"pull,omitempty"`
	Ack           *Ack           `json:"ack,omitempty"`
	Nack          *Nack          `json:"nack,omitempty"`
	Seek          *Seek          `json:"seek,omitempty"`
	Describe      *Describe      `json:"describe,omitempty"`
	DescribeTopic *DescribeTopic `json:"describe_topic,omitempty"`
	OpenProducer  *OpenProducer  `json:"open_producer,omitempty"`
	Leave         *Leave         `json:"leave,omitempty"`
	Create        *Create        `json:"create,omitempty"`
	Delete        *Delete        `json:"delete,omitempty"`
}

type (
	// Publish is one attempt to append messages to one partition.
	Publish struct {
		Topic        string           `json:"topic"`
		Partition    model.Partition  `json:"partition"`
		AnyPartition bool             `json:"any_partition,omitempty"` // not known, for lack of an answer
		Producer     model.ProducerID `json:"producer,omitempty"`      // 0: none, a retry may duplicate
		Epoch        model.Epoch      `json:"epoch,omitempty"`
		Sequence     model.Sequence   `json:"sequence,omitempty"` // of the first message
		Messages     []Published      `json:"messages"`

		Offset    model.Offset `json:"offset"`              // result: of the first message
		Duplicate bool         `json:"duplicate,omitempty"` // result: an earlier attempt's offset
	}
	// Published is one message of a Publish; the i-th has sequence and offset + i.
	Published struct {
		Key     string `json:"key,omitempty"` // empty: keyless
		Payload uint64 `json:"payload"`       // id or hash, unique per message
		Tag     string `json:"tag,omitempty"` // what filters go by
	}

	// Fetch reads a partition without a subscription.
	Fetch struct {
		Topic     string          `json:"topic"`
		Partition model.Partition `json:"partition"`
		Offset    model.Offset    `json:"offset"`

		Messages      []Message    `json:"messages,omitempty"`
		HighWatermark model.Offset `json:"high_watermark"`
		LogStart      model.Offset `json:"log_start"`
		Fresh         bool         `json:"fresh,omitempty"` // the high watermark claims to be current, not just true once
	}
	// Message is a message as a reader got it. Fetches leave Partition at 0.
	Message struct {
		Partition  model.Partition `json:"partition,omitempty"`
		Attempt    uint32          `json:"attempt,omitempty"` // pulls; from 1; 0: not told
		Offset     model.Offset    `json:"offset"`
		Payload    uint64          `json:"payload"`
		AppendTime model.Wall      `json:"append_time,omitempty"` // 0: not told
	}

	// Pull is one pull of one member of a subscription.
	Pull struct {
		Subscription string         `json:"subscription"` // topic/name
		Member       model.MemberID `json:"member"`
		Sequence     uint64         `json:"pull_sequence,omitempty"` // 0: starts at the cursor

		Generation model.Generation `json:"generation,omitempty"`
		Delivery   uint64           `json:"delivery,omitempty"` // mode shared: names what this pull gave
		Messages   []Message        `json:"messages,omitempty"`
		Skipped    []Range          `json:"skipped,omitempty"`
	}
	// Range is [From, To) of one partition.
	Range struct {
		Partition model.Partition `json:"partition"`
		From      model.Offset    `json:"from"`
		To        model.Offset    `json:"to"`
	}

	// Ack acknowledges everything below Next in one partition, or single messages.
	Ack struct {
		Subscription string           `json:"subscription"`
		Member       model.MemberID   `json:"member"`
		Generation   model.Generation `json:"generation"` // of the pull that delivered
		Partition    model.Partition  `json:"partition"`
		Next         model.Offset     `json:"next"`
		Offsets      []model.Offset   `json:"offsets,omitempty"` // single ones; then Next is 0
		Blind        bool             `json:"blind,omitempty"`   // the client knowingly acks what it was not given

		Cursor model.Offset `json:"cursor"` // result
	}
	// Leave ends a member's session.
	Leave struct {
		Subscription string         `json:"subscription"`
		Member       model.MemberID `json:"member"`
	}
	// Nack gives messages back: from Offset on, or in mode shared that one.
	Nack struct {
		Subscription string           `json:"subscription"`
		Member       model.MemberID   `json:"member"`
		Generation   model.Generation `json:"generation"`
		Partition    model.Partition  `json:"partition"`
		Offset       model.Offset     `json:"offset"`
	}

	// Seek moves a subscription's cursors.
	Seek struct {
		Subscription string            `json:"subscription"`
		To           Target            `json:"to"`
		Time         model.Wall        `json:"time,omitempty"`       // with TargetTime
		Offsets      []Cursor          `json:"offsets,omitempty"`    // with TargetOffsets
		Snapshot     string            `json:"snapshot,omitempty"`   // with TargetSnapshot
		Partitions   []model.Partition `json:"partitions,omitempty"` // empty: all

		Generation model.Generation `json:"generation,omitempty"`
		Cursors    []Cursor         `json:"cursors,omitempty"` // where they went
	}
	// Cursor is an offset of one partition: everything below it is acked.
	Cursor struct {
		Partition model.Partition `json:"partition"`
		Offset    model.Offset    `json:"offset"`
	}

	// Describe reads a subscription's state, freshly. With Snapshot it tells the
	// cursors alone, and keeps them under that name.
	Describe struct {
		Subscription string              `json:"subscription"`
		Snapshot     string              `json:"snapshot,omitempty"`
		Partitions   []SubscriptionState `json:"partitions,omitempty"`
	}
	// SubscriptionState is one partition's share of a Describe.
	SubscriptionState struct {
		Partition     model.Partition  `json:"partition"`
		Cursor        model.Offset     `json:"cursor"`
		Generation    model.Generation `json:"generation,omitempty"` // the partition's fence; 0: not told
		HighWatermark model.Offset     `json:"high_watermark"`
		LogStart      model.Offset     `json:"log_start"`
		Lag           uint64           `json:"lag"`
	}
	// DescribeTopic reads a topic's state, freshly.
	DescribeTopic struct {
		Topic      string       `json:"topic"`
		Partitions []TopicState `json:"partitions,omitempty"`
	}
	// TopicState is one partition's share of a DescribeTopic.
	TopicState struct {
		Partition     model.Partition `json:"partition"`
		HighWatermark model.Offset    `json:"high_watermark"`
		LogStart      model.Offset    `json:"log_start"`
	}

	// OpenProducer opens a producer; with Fence it fences older epochs on the
	// partitions named.
	OpenProducer struct {
		Name       string            `json:"name"`
		Fence      bool              `json:"fence,omitempty"`
		Topic      string            `json:"topic,omitempty"`
		Partitions []model.Partition `json:"partitions,omitempty"`

		Producer model.ProducerID `json:"producer,omitempty"`
		Epoch    model.Epoch      `json:"epoch,omitempty"`
	}
	// Create makes a topic or a subscription; the other name is empty.
	Create struct {
		Topic        string     `json:"topic,omitempty"`
		Subscription string     `json:"subscription,omitempty"`
		Partitions   uint32     `json:"partitions,omitempty"` // of a topic
		Start        Target     `json:"start,omitempty"`      // of a subscription; empty: earliest
		Time         model.Wall `json:"time,omitempty"`       // with TargetTime
		Shared       bool       `json:"shared,omitempty"`     // not in ordered mode
		Filtered     bool       `json:"filtered,omitempty"`   // does not get every message
		Tag          string     `json:"tag,omitempty"`        // if filtered: gets those with this tag; empty: not known which
		// Of a subscription whose messages are judged one by one, mode shared or with dead letters.
		KeyOrdered  bool   `json:"key_ordered,omitempty"`
		Attempts    uint32 `json:"attempts,omitempty"`     // after so many a message is a dead letter; 0: never
		DeadLetters string `json:"dead_letters,omitempty"` // the topic, of this subscription alone
		Lease       Moment `json:"lease,omitempty"`        // shorter than that no lease ends by itself
	}
	// Delete removes a topic or a subscription; the other name is empty.
	Delete struct {
		Topic        string `json:"topic,omitempty"`
		Subscription string `json:"subscription,omitempty"`
	}
)

// Target is where a seek goes, or a subscription starts.
type Target string

// Targets.
const (
	TargetEarliest Target = "earliest"
	TargetLatest   Target = "latest"
	TargetTime     Target = "time"
	TargetOffsets  Target = "offsets"
	TargetSnapshot Target = "snapshot"
)

// Kind names what an operation does.
func (op *Op) Kind() string {
	switch {
	case op.Publish != nil:
		return "publish"
	case op.Fetch != nil:
		return "fetch"
	case op.Pull != nil:
		return "pull"
	case op.Ack != nil:
		return "ack"
	case op.Nack != nil:
		return "nack"
	case op.Leave != nil:
		return "leave"
	case op.Seek != nil:
		return "seek"
	case op.Describe != nil:
		return "describe"
	case op.DescribeTopic != nil:
		return "describe_topic"
	case op.OpenProducer != nil:
		return "open_producer"
	case op.Create != nil:
		return "create"
	case op.Delete != nil:
		return "delete"
	}
	return ""
}

// done says that the operation happened, and by when: at or before its return.
func (op *Op) done() bool { return op.Outcome == OutcomeOK }

// maybe says that the operation happened or may have.
func (op *Op) maybe() bool { return op.Outcome != OutcomeRefused }

// by is the moment by which an operation's effect was in place: its return, or
// Open when that is not known.
func (op *Op) by() Moment {
	if op.Outcome == OutcomeOK {
		return op.Return
	}
	return Open
}

// History is what the clients did, in order of their calls. Append only.
type History struct {
	Ops []Op
}

// Invoke adds a call made at op.Call, its outcome unknown until Answer says
// otherwise, and returns its number.
func (h *History) Invoke(op Op) int {
	op.Return, op.Outcome = Open, OutcomeUnknown
	h.Ops = append(h.Ops, op)
	return len(h.Ops) - 1
}

// Answer notes how call number i ended at a moment and returns it, so that the
// result can be filled in; the pointer is good until the next Invoke.
func (h *History) Answer(i int, at Moment, outcome Outcome, reason model.Reason) *Op {
	op := &h.Ops[i]
	op.Return, op.Outcome, op.Reason = at, outcome, reason
	return op
}

// Validate says what keeps a history from being judged.
func (h *History) Validate() error {
	for i := range h.Ops {
		if err := h.Ops[i].validate(); err != nil {
			return fmt.Errorf("operation %d: %w", i, err)
		}
		if i > 0 && h.Ops[i].Call < h.Ops[i-1].Call {
			return fmt.Errorf("operation %d was called before the one above it; order operations by call", i)
		}
	}
	return nil
}

func (op *Op) validate() error {
	set := 0
	for _, there := range [...]bool{op.Publish != nil, op.Fetch != nil, op.Pull != nil, op.Ack != nil,
		op.Nack != nil, op.Leave != nil, op.Seek != nil, op.Describe != nil, op.DescribeTopic != nil, op.OpenProducer != nil,
		op.Create != nil, op.Delete != nil} {
		if there {
			set++
		}
	}
	switch {
	case set != 1:
		return fmt.Errorf("has %d kinds; give it exactly one of publish, fetch, pull, ack and so on", set)
	case op.Outcome != OutcomeOK && op.Outcome != OutcomeRefused && op.Outcome != OutcomeUnknown:
		return fmt.Errorf("outcome %q is not ok, refused or unknown", op.Outcome)
	case op.Return < op.Call:
		return fmt.Errorf("returned at %d, before its call at %d", op.Return, op.Call)
	case op.Return == Open && op.Outcome != OutcomeUnknown:
		return fmt.Errorf("has the outcome %s but no return", op.Outcome)
	case op.Publish != nil && op.Outcome == OutcomeOK && op.Publish.AnyPartition:
		return fmt.Errorf("a publish that succeeded must name its partition")
	case op.Seek != nil && op.Outcome == OutcomeOK && op.Seek.Generation == 0:
		return fmt.Errorf("a seek that succeeded must name its generation")
	}
	return nil
}
