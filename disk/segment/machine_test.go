package segment

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/disk"
	"github.com/tapedeck/tapedeck/sim/simdisk"
)

// machine compares a store with a list of batches, over crashes and full disks.
type machine struct {
	d       *simdisk.Disk
	s       *Store
	batches []batch.View // stored ones, adjacent
	rolls   []model.Offset
	end     model.Offset
	time    model.Wall
	// The manifest's, as of the last checkpoint.
	start, durable model.Offset
}

func (m *machine) open(t *rapid.T) {
	s, err := open(m.d.FS(), dir, m.start, m.durable, 500)
	if err != nil {
		t.Fatalf("open [%d, %d): %v", m.start, m.durable, err)
	}
	m.s = s
	for len(m.batches) > 0 && m.batches[len(m.batches)-1].Next() > m.durable {
		m.batches = m.batches[:len(m.batches)-1]
	}
	m.end = m.durable
	if m.start == m.durable {
		m.batches = nil
	}
	for len(m.batches) > 0 && m.batches[0].Next() <= s.Start() {
		m.batches = m.batches[1:]
	}
	for len(m.rolls) > 0 && m.rolls[len(m.rolls)-1] > m.end {
		m.rolls = m.rolls[:len(m.rolls)-1]
	}
}

// try runs a write that a full disk may fail, and tries it again with room.
func (m *machine) try(t *rapid.T, f func() error) {
	err := f()
	if errors.Is(err, disk.ErrNoSpace) {
		m.check(t)
		m.d.SetFree(1 << 30)
		err = f()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (m *machine) append(t *rapid.T) {
	m.time += model.Wall(rapid.IntRange(0, 3).Draw(t, "later"))
	b := make1(m.end, m.time, rapid.IntRange(1, 3).Draw(t, "count"), rapid.IntRange(0, 400).Draw(t, "size"))
	m.try(t, func() error { return m.s.Append(b) })
	m.batches, m.end = append(m.batches, b), b.Next()
}

func (m *machine) roll(t *rapid.T) {
	m.try(t, func() error { return m.s.Roll(m.end) })
	m.rolls = append(m.rolls, m.end)
}

// checkpoint makes all durable, writes the manifest, and drops below its start.
func (m *machine) checkpoint(t *rapid.T) {
	if err := m.s.Sync(); err != nil {
		t.Fatal(err)
	}
	m.durable = m.end
	m.start = max(m.start, m.s.Start())
	if len(m.rolls) > 0 && rapid.Bool().Draw(t, "drop") {
		m.start = max(m.start, rapid.SampledFrom(m.rolls).Draw(t, "start"))
		if err := m.s.Drop(m.start); err != nil {
			t.Fatal(err)
		}
		for len(m.batches) > 0 && m.batches[0].Next() <= m.s.Start() {
			m.batches = m.batches[1:]
		}
	}
}

func (m *machine) reset(t *rapid.T) {
	m.end += model.Offset(rapid.IntRange(0, 10).Draw(t, "gap"))
	m.start, m.durable, m.batches, m.rolls = m.end, m.end, nil, nil
	if err := m.s.Reset(m.end); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) crash(t *rapid.T) {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "crash"), 0))
	m.d.Crash(simdisk.CrashMode{Keep: rapid.SampledFrom([]simdisk.Keep{0, 1, 2}).Draw(t, "keep")}, rng)
	m.open(t)
}

func (m *machine) full(t *rapid.T) {
	m.d.SetFree(rapid.Uint64Range(0, 1500).Draw(t, "free"))
}

// check holds the store to the list.
func (m *machine) check(t *rapid.T) {
	if m.s.End() != m.end {
		t.Fatalf("end is %d, want %d", m.s.End(), m.end)
	}
	start := m.end
	if len(m.batches) > 0 {
		start = m.batches[0].Base()
	}
	if m.s.Start() != start {
		t.Fatalf("start is %d, want %d", m.s.Start(), start)
	}
	segs := m.s.Segments()
	for i := 1; i < len(segs); i++ {
		if segs[i].Start != segs[i-1].End || !segs[i-1].Rolled {
			t.Fatalf("segments %+v", segs)
		}
	}
	for _, b := range m.batches {
		run, err := m.s.Read(b.Next()-1, 1)
		if err != nil || !bytes.Equal(run, b) {
			t.Fatalf("read %d: %d bytes, %v", b.Next()-1, len(run), err)
		}
	}
}

func (m *machine) read(t *rapid.T) {
	offset := model.Offset(rapid.IntRange(0, int(m.end)+2).Draw(t, "offset"))
	most := rapid.IntRange(0, 5000).Draw(t, "max")
	run, err := m.s.Read(offset, most)
	switch {
	case offset < m.s.Start():
		if !errors.Is(err, ErrBelowStart) {
			t.Fatalf("read %d below start %d: %v", offset, m.s.Start(), err)
		}
		return
	case err != nil:
		t.Fatal(err)
	case offset >= m.end && len(run) == 0:
		return
	}
	vs, err := batch.Split(run)
	if err != nil || len(vs) == 0 || vs[0].Base() > offset || vs[0].Next() <= offset || len(vs) > 1 && len(run) > most {
		t.Fatalf("read %d of at most %d gave %d batches in %d bytes, %v", offset, most, len(vs), len(run), err)
	}
	i := 0
	for m.batches[i].Base() != vs[0].Base() {
		i++
	}
	for j, v := range vs {
		if !bytes.Equal(v, m.batches[i+j]) {
			t.Fatalf("read %d: batch %d is not what was written", offset, j)
		}
	}
}

func (m *machine) readAt(t *rapid.T) {
	at := model.Wall(rapid.IntRange(0, int(m.time)+1).Draw(t, "at"))
	run, err := m.s.ReadAt(at)
	if err != nil {
		t.Fatal(err)
	}
	var want batch.View
	for _, b := range m.batches {
		if b.AppendTime() >= at {
			want = b
			break
		}
	}
	if !bytes.Equal(run, want) {
		t.Fatalf("read at %d gave %d bytes, want %d", at, len(run), len(want))
	}
}

func TestMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{d: simdisk.New()}
		m.open(t)
		t.Repeat(map[string]func(*rapid.T){
			"append": m.append, "append more": m.append, "append again": m.append, "roll": m.roll,
			"checkpoint": m.checkpoint, "reset": m.reset, "crash": m.crash, "full": m.full,
			"read": m.read, "read at": m.readAt, "": m.check,
		})
	})
}
