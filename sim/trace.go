package sim

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
)

// kind names what an event did, in the trace.
type kind uint8

// Kinds of traced events. The numbers reach the trace hash.
const (
	kindPacket kind = 1 + iota
	kindPeerDown
	kindTick
	kindJournal
	kindLane
	kindRequest
	kindReply
	kindSend
	kindCrash
	kindStart
	kindPause
	kindResume
	kindNetwork
	kindClock
	kindClient
	kindPhase
	kindNotice
)

var kindNames = [...]string{"", "packet", "peerdown", "tick", "journal", "lane", "request", "reply", "send",
	"crash", "start", "pause", "resume", "network", "clock", "client", "phase", "notice"}

// checkpointEvery is the number of events between two points of Trace.Points.
const checkpointEvery = 1024

// Trace is a running hash over every event, and lines for the interesting ones.
type Trace struct {
	// Line takes the interesting events' lines, in fixed columns; nil: none.
	Line   func(string)
	digest *xxhash.Digest
	events uint64
	points []uint64
	buf    [26]byte
}

func newTrace(line func(string)) *Trace { return &Trace{Line: line, digest: xxhash.New()} }

// note hashes one event: when, where, what, and a hash of its content.
func (t *Trace) note(now time.Duration, node int, k kind, content uint64) {
	b := &t.buf
	binary.LittleEndian.PutUint64(b[0:], uint64(now))
	b[8], b[9] = byte(node), byte(k)
	binary.LittleEndian.PutUint64(b[10:], content)
	binary.LittleEndian.PutUint64(b[18:], t.events)
	t.digest.Write(b[:])
	t.events++
	if t.events%checkpointEvery == 0 {
		t.points = append(t.points, t.digest.Sum64())
	}
}

// say prints an interesting event: seconds, who, what, details.
func (t *Trace) say(now time.Duration, who string, k kind, format string, args ...any) {
	if t.Line == nil {
		return
	}
	t.Line(fmt.Sprintf("%11.6f  %-6s %-9s %s", now.Seconds(), who, kindNames[k], fmt.Sprintf(format, args...)))
}

// Hash is the running hash so far; equal hashes mean equal runs.
func (t *Trace) Hash() uint64 { return t.digest.Sum64() }

// Points are the running hash after each 1,024 events: the first pair of two
// runs' points that differs tells where they parted.
func (t *Trace) Points() []uint64 { return t.points }
