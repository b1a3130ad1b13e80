package subscription

import (
	"fmt"

	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

const commandVersion = 3

// kind tells commands apart in raft entries. Numbers are never reused.
type kind uint8

const (
	kindInit    kind = 1
	kindGrow    kind = 2
	kindDrop    kind = 3
	kindMembers kind = 4
	kindAssign  kind = 5
	kindAck     kind = 6
	kindSeek    kind = 7
	kindSkip    kind = 8
	kindLapse   kind = 9

	kindLetter   kind = 10
	kindLettered kind = 11

	kindLease  kind = 12
	kindReturn kind = 13

	kindKeep    kind = 15
	kindForget  kind = 16
	kindRestore kind = 17
	kindPass    kind = 14
)

// command is what an entry does to the state.
type command interface {
	wire.Coder
	kind() kind
	apply(s *state) outcome
}

// header leads every entry. Origin and sequence let the leader that proposed it
// find who waits for it; apply does not read them.
type header struct {
	origin, sequence uint64
}

// initCommand takes a subscription over from its definition.
type initCommand struct {
	id      model.SubscriptionID
	ref     string
	topic   model.TopicID
	mode    model.Mode
	keyed   bool
	born    uint64
	cursors []model.Offset // by partition
}

// growCommand adds partitions, to be read from their start.
type growCommand struct {
	id         model.SubscriptionID
	partitions uint32 // the new number
}

// dropCommand forgets a subscription that a catalog of this version does not know.
type dropCommand struct {
	id      model.SubscriptionID
	version uint64
}

// membersCommand ends sessions, then begins some.
type membersCommand struct {
	id     model.SubscriptionID
	leaves []leaving
	joins  []joining
	limit  uint32   // members at most
	lapses []lapse  // what the leaving held
	died   []uint64 // shared mode: the leaving, by number, that count attempts
}

// leaving ends the session that began with this number; a later one stays.
type leaving struct {
	member model.MemberID
	joined uint64
}

type joining struct {
	member model.MemberID
	static bool
}

// assignCommand gives partitions new owners, if the generation is still the one
// the changes were computed against.
type assignCommand struct {
	id         model.SubscriptionID
	generation model.Generation
	changes    []change
}

type change struct {
	partition model.Partition
	owner     model.MemberID
}

// ackCommand is the acks of many members, in the order they came.
type ackCommand struct {
	acks  []ack
	limit uint32 // ranges ahead of a partition's cursor at most
}

type ack struct {
	id         model.SubscriptionID
	member     model.MemberID
	generation model.Generation
	items      []ackItem
}

// ackItem moves a cursor up to next, exclusively, and takes single messages
// ahead of it. A void one was refused by the leader before it looked at what was
// delivered: it stays refused.
type ackItem struct {
	partition model.Partition
	next      model.Offset
	ahead     intervals
	void      bool
}

// end is the end of what an item acks.
func (i *ackItem) end() model.Offset {
	if n := len(i.ahead); n > 0 {
		return max(i.next, i.ahead[n-1].to)
	}
	return i.next
}

// seekCommand moves cursors wherever it says.
type seekCommand struct {
	id model.SubscriptionID
	to []place
}

// skipCommand moves cursors up to the log's start.
type skipCommand struct {
	id model.SubscriptionID
	to []place
}

// lapseCommand counts an attempt of messages that come back.
type lapseCommand struct {
	id     model.SubscriptionID
	lapses []lapse
}

// lapse is of the owner that the fence names; another one's changes nothing. A
// delivery may end in two ways at once, by its deadline and its holder's death,
// say: what was counted since the lapse was proposed is that delivery's end.
type lapse struct {
	partition model.Partition
	fence     model.Generation
	offset    model.Offset
	before    uint32 // attempts counted when it was proposed; by now another number: it changes nothing
	limit     uint32 // messages of the partition whose attempts are counted at most
}

type place struct {
	partition model.Partition
	offset    model.Offset
}

func (*initCommand) kind() kind    { return kindInit }
func (*growCommand) kind() kind    { return kindGrow }
func (*dropCommand) kind() kind    { return kindDrop }
func (*membersCommand) kind() kind { return kindMembers }
func (*assignCommand) kind() kind  { return kindAssign }
func (*ackCommand) kind() kind     { return kindAck }
func (*seekCommand) kind() kind    { return kindSeek }
func (*skipCommand) kind() kind    { return kindSkip }
func (*lapseCommand) kind() kind   { return kindLapse }

func newCommand(k kind) command {
	switch k {
	case kindInit:
		return &initCommand{}
	case kindGrow:
		return &growCommand{}
	case kindDrop:
		return &dropCommand{}
	case kindMembers:
		return &membersCommand{}
	case kindAssign:
		return &assignCommand{}
	case kindAck:
		return &ackCommand{}
	case kindSeek:
		return &seekCommand{}
	case kindSkip:
		return &skipCommand{}
	case kindLapse:
		return &lapseCommand{}
	case kindLetter:
		return &letterCommand{}
	case kindKeep:
		return &keepCommand{}
	case kindForget:
		return &forgetCommand{}
	case kindRestore:
		return &restoreCommand{}
	case kindPass:
		return &passCommand{}
	case kindLettered:
		return &letteredCommand{}
	case kindLease:
		return &leaseCommand{}
	case kindReturn:
		return &returnCommand{}
	}
	return nil
}

// entry is a command as it lies in the raft log.
type entry struct {
	header
	command command
}

// Code implements wire.Coder.
func (e *entry) Code(c *wire.Codec) {
	c.Version(commandVersion)
	var k kind
	if !c.Decoding {
		k = e.command.kind()
	}
	wire.Uint(c, &k)
	wire.Uint(c, &e.origin)
	wire.Uint(c, &e.sequence)
	if c.Decoding {
		if c.Err != nil {
			return
		}
		if e.command = newCommand(k); e.command == nil {
			c.Fail(fmt.Errorf("coordinator command %d is unknown to this build", k))
			return
		}
	}
	e.command.Code(c)
}

func decodeEntry(data []byte) (*entry, error) {
	e := &entry{}
	if err := wire.Decode(data, e); err != nil {
		return nil, err
	}
	return e, nil
}

// Code implements wire.Coder.
func (v *initCommand) Code(c *wire.Codec) {
	wire.Uint(c, &v.id)
	wire.String(c, &v.ref)
	wire.Uint(c, &v.topic)
	wire.Uint(c, &v.mode)
	c.Bool(&v.keyed)
	wire.Uint(c, &v.born)
	wire.Slice(c, &v.cursors, func(c *wire.Codec, o *model.Offset) { wire.Uint(c, o) })
	if c.Decoding && v.id == 0 {
		c.Fail(fmt.Errorf("subscription id is 0; ids start at 1"))
	}
}

// Code implements wire.Coder.
func (v *growCommand) Code(c *wire.Codec) {
	wire.Uint(c, &v.id)
	wire.Uint(c, &v.partitions)
	if c.Decoding && v.partitions > model.MaxPartitions {
		c.Fail(fmt.Errorf("%d partitions are more than %d", v.partitions, model.MaxPartitions))
	}
}

// Code implements wire.Coder.
func (v *dropCommand) Code(c *wire.Codec) {
	wire.Uint(c, &v.id)
	wire.Uint(c, &v.version)
}

// Code implements wire.Coder.
func (v *membersCommand) Code(c *wire.Codec) {
	wire.Uint(c, &v.id)
	wire.Slice(c, &v.leaves, func(c *wire.Codec, l *leaving) {
		wire.String(c, &l.member)
		wire.Uint(c, &l.joined)
	})
	wire.Slice(c, &v.joins, func(c *wire.Codec, j *joining) {
		wire.String(c, &j.member)
		c.Bool(&j.static)
	})
	wire.Uint(c, &v.limit)
	wire.Slice(c, &v.lapses, codeLapse)
	wire.Slice(c, &v.died, func(c *wire.Codec, n *uint64) { wire.Uint(c, n) })
}

// Code implements wire.Coder.
func (v *assignCommand) Code(c *wire.Codec) {
	wire.Uint(c, &v.id)
	wire.Uint(c, &v.generation)
	wire.Slice(c, &v.changes, func(c *wire.Codec, ch *change) {
		wire.Uint(c, &ch.partition)
		wire.String(c, &ch.owner)
	})
}

// Code implements wire.Coder.
func (v *ackCommand) Code(c *wire.Codec) {
	wire.Slice(c, &v.acks, func(c *wire.Codec, a *ack) {
		wire.Uint(c, &a.id)
		wire.String(c, &a.member)
		wire.Uint(c, &a.generation)
		wire.Slice(c, &a.items, func(c *wire.Codec, i *ackItem) {
			wire.Uint(c, &i.partition)
			wire.Uint(c, &i.next)
			codeIntervals(c, &i.ahead)
			c.Bool(&i.void)
		})
	})
	wire.Uint(c, &v.limit)
}

// Code implements wire.Coder.
func (v *seekCommand) Code(c *wire.Codec) {
	wire.Uint(c, &v.id)
	wire.Slice(c, &v.to, codePlace)
}

// Code implements wire.Coder.
func (v *skipCommand) Code(c *wire.Codec) {
	wire.Uint(c, &v.id)
	wire.Slice(c, &v.to, codePlace)
}

// Code implements wire.Coder.
func (v *lapseCommand) Code(c *wire.Codec) {
	wire.Uint(c, &v.id)
	wire.Slice(c, &v.lapses, codeLapse)
}

func codeLapse(c *wire.Codec, l *lapse) {
	wire.Uint(c, &l.partition)
	wire.Uint(c, &l.fence)
	wire.Uint(c, &l.offset)
	wire.Uint(c, &l.before)
	wire.Uint(c, &l.limit)
}

func codePlace(c *wire.Codec, p *place) {
	wire.Uint(c, &p.partition)
	wire.Uint(c, &p.offset)
}
