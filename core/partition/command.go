package partition

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// commandVersion is a command's first byte. It must differ from the first byte
// of a batch's magic, by which an entry is told to be a batch.
const commandVersion = 1

// commandKind numbers are part of the log's format and never reused.
type commandKind uint8

const (
	cmdFence     commandKind = 1 // bar epochs of producer below epoch
	cmdConfigure commandKind = 2 // take the topic's settings over
	cmdRoll      commandKind = 3 // close the active segment at offset
	cmdTrim      commandKind = 4 // move the log start to offset
	cmdExpire    commandKind = 5 // forget producers not active for model.ProducerExpiry
)

// command is every entry but a batch. at is its log time.
type command struct {
	kind     commandKind
	at       model.Wall
	producer model.ProducerID
	epoch    model.Epoch
	settings settings
	offset   model.Offset
	// untrusted: at was not the wall clock's, see logClock.
	untrusted bool
}

// Code implements wire.Coder.
func (m *command) Code(c *wire.Codec) {
	c.Version(commandVersion)
	wire.Uint(c, &m.kind)
	wire.Int(c, &m.at)
	c.Bool(&m.untrusted)
	switch m.kind {
	case cmdFence:
		wire.Uint(c, &m.producer)
		wire.Uint(c, &m.epoch)
	case cmdConfigure:
		codeSettings(c, &m.settings)
	case cmdRoll, cmdTrim:
		wire.Uint(c, &m.offset)
	case cmdExpire:
	default:
		c.Fail(fmt.Errorf("command kind %d is unknown to this build", m.kind))
	}
}

func codeSettings(c *wire.Codec, s *settings) {
	wire.Uint(c, &s.version)
	c.Duration(&s.retentionTime)
	wire.Uint(c, &s.retentionBytes)
}

func isBatch(entry []byte) bool {
	return len(entry) >= 4 && binary.LittleEndian.Uint32(entry) == batch.Magic
}

// settingsOf is what of a topic's settings goes into the log.
func settingsOf(t *model.Topic, mapVersion uint64) settings {
	s := settings{
		version:        mapVersion,
		retentionTime:  t.Settings.RetentionTime,
		retentionBytes: t.Settings.RetentionBytes,
	}
	if s.retentionTime <= 0 {
		s.retentionTime = model.DefaultRetention
	}
	return s
}

// sameAs compares but for the version.
func (s settings) sameAs(o settings) bool {
	o.version = s.version
	return s == o
}

// minus is t-d without passing below the smallest moment.
func minus(t model.Wall, d time.Duration) model.Wall {
	if r := t - model.Wall(d); r < t {
		return r
	}
	return math.MinInt64
}
