package partition

import (
	"time"

	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/probe"
)

// How often a leader looks after retention: never more often than tendMin, at
// least each tendMax while there is anything that can grow old, since the wall
// clock may have moved, and each tendUntrusted while that cannot be trusted.
const (
	tendMin       = time.Second
	tendMax       = time.Minute
	tendUntrusted = 10 * time.Second
	// expireSlack lets producers that fall silent one after the other share an entry.
	expireSlack = time.Minute
	// minRollBytes keeps a small retention by bytes from making tiny segments.
	minRollBytes = 1 << 20
)

// configure proposes the topic's settings when the map has newer ones than the
// log. A map older than the one they were taken from has no say. False: raft
// did not take the proposal; try again.
func (m *Machine) configure(h group.Host) bool {
	l := m.lead
	c := h.Catalog()
	t, ok := c.TopicByID(m.cfg.Topic)
	if !ok || c.Version() <= l.settings.version {
		return true
	}
	want := settingsOf(t, c.Version())
	if l.settings.version != 0 && want.sameAs(l.settings) {
		return true
	}
	if m.propose(h, nobody, command{kind: cmdConfigure, settings: want}) == nil {
		return false
	}
	l.settings = want
	return true
}

// tend proposes what time and size ask for: settings, a roll, a trim, an
// expiry. While the wall clock cannot be trusted nothing is deleted.
func (m *Machine) tend(h group.Host) {
	l := m.lead
	if !m.configure(h) || l.broken {
		l.tendAt = h.Now().Add(tendMin)
		return
	}
	if !h.WallTrusted() {
		l.tendAt = m.due(h)
		return
	}
	now := l.clock
	now.move(l.stamp(h))
	if l.activeBytes > 0 && l.activeFirst <= minus(now.time, m.rollAge()) {
		group.Hit(h, probe.SegmentRolledByAge)
		m.proposeRoll(h)
	}
	if bound := m.st.trimBound(now.aged); bound > m.st.logStart() && !l.trimming {
		group.Hit(h, probe.Trimmed)
		l.trimming = m.propose(h, nobody, command{kind: cmdTrim, offset: bound}) != nil
	}
	upto := minus(now.aged, model.ProducerExpiry)
	if p := m.st.producers.oldest; p != nil && p.last <= upto && !l.expiring {
		if m.propose(h, nobody, command{kind: cmdExpire}) != nil {
			l.expiring, l.expired = true, minus(l.clock.aged, model.ProducerExpiry)
		}
	}
	l.tendAt = m.due(h)
}

func (m *Machine) proposeRoll(h group.Host) {
	l := m.lead
	if m.propose(h, nobody, command{kind: cmdRoll, offset: l.next}) != nil {
		l.activeBytes = 0
	}
}

// rollBytes is the size that an active segment does not pass: a small retention
// by bytes needs small segments, since only whole ones go.
func (m *Machine) rollBytes() uint64 {
	limit := uint64(m.cfg.Limits.SegmentBytes)
	if r := m.st.settings.retentionBytes; r > 0 {
		limit = min(limit, max(r, minRollBytes))
	}
	return limit
}

// rollAge is the age at which an active segment is closed.
func (m *Machine) rollAge() time.Duration {
	if m.st.settings.version == 0 {
		return m.cfg.Limits.SegmentAge
	}
	return min(m.cfg.Limits.SegmentAge, m.st.settings.retentionTime)
}

// due is when tend is worth calling next: Never while nothing can grow old.
func (m *Machine) due(h group.Host) model.Mono {
	l := m.lead
	now := l.clock
	now.move(l.stamp(h))
	wait := time.Duration(-1)
	sooner := func(passed model.Wall, age time.Duration) {
		d := min(tendMax, max(tendMin, age-time.Duration(max(0, passed))))
		if wait < 0 || d < wait {
			wait = d
		}
	}
	if l.activeBytes > 0 {
		sooner(now.time-l.activeFirst, m.rollAge())
	}
	if len(m.st.segments) > 1 && m.st.settings.version != 0 {
		if m.st.trimBound(now.aged) > m.st.logStart() {
			sooner(0, 0)
		}
		sooner(now.aged-m.st.segments[0].LastAged, m.st.settings.retentionTime)
	}
	if p := m.st.producers.oldest; p != nil {
		sooner(now.aged-p.last, model.ProducerExpiry+expireSlack)
	}
	if wait < 0 {
		return model.Never
	}
	if !h.WallTrusted() {
		wait = max(wait, tendUntrusted)
	}
	return h.Now().Add(wait)
}
