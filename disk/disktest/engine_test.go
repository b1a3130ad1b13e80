package disktest

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tapedeck/tapedeck/disk/journal"
	"github.com/tapedeck/tapedeck/disk/osdisk"
	"github.com/tapedeck/tapedeck/disk/record"
	"github.com/tapedeck/tapedeck/disk/scratch"
	"github.com/tapedeck/tapedeck/sim/simdisk"
)

// world is a machine with a journal on it.
type world interface {
	engine() record.Engine
	// durable says that everything written so far was synced.
	durable()
	// crash throws away a share of what was not; engines from before are dead.
	crash(keep simdisk.Keep, rng *rand.Rand)
	// files lists the journal's files with their bytes, to be damaged.
	files() []string
	load(name string) []byte
	store(name string, data []byte)
	remove(name string)
}

func worlds() map[string]func(t *testing.T) world {
	return map[string]func(t *testing.T) world{
		"memory":  func(*testing.T) world { return &memory{simdisk.New()} },
		"direct":  func(t *testing.T) world { return newReal(t) },
		"tidwall": func(t *testing.T) world { return newTidwall(t) },
		"memory engine on real files": func(t *testing.T) world {
			r := newReal(t)
			r.make = func(dir string) record.Engine {
				f, err := osdisk.Open(dir)
				must(t, err)
				return &closing{simdisk.NewEngine(f, "journal"), f}
			}
			return r
		},
	}
}

// withMirrored adds the engines that write real files on the simulated disk, whose
// crashes lose and tear whatever was not synced, folder entries, too.
func withMirrored(worlds map[string]func(t *testing.T) world) map[string]func(t *testing.T) world {
	worlds["direct in memory"] = func(t *testing.T) world { return newMirrored(t, journal.Own) }
	worlds["tidwall in memory"] = func(t *testing.T) world { return newMirrored(t, journal.Tidwall) }
	return worlds
}

type closing struct {
	*simdisk.Engine
	f *osdisk.FS
}

func (c *closing) Close() error {
	_ = c.f.Close()
	return c.Engine.Close()
}

// memory is the simulated engine on the simulated disk.
type memory struct{ d *simdisk.Disk }

func (m *memory) engine() record.Engine { return simdisk.NewEngine(m.d.FS(), "journal") }
func (m *memory) durable()              {}
func (m *memory) crash(keep simdisk.Keep, rng *rand.Rand) {
	m.d.Crash(simdisk.CrashMode{Keep: keep}, rng)
}

func (m *memory) files() (names []string) {
	for _, f := range m.d.Files() {
		names = append(names, f.Name)
	}
	return names
}

func (m *memory) load(name string) []byte {
	h, err := m.d.FS().Open(name)
	check(err)
	size, err := h.Size()
	check(err)
	b := make([]byte, size)
	_, _ = h.ReadAt(b, 0)
	return b
}

func (m *memory) store(name string, data []byte) {
	_ = m.d.FS().Remove(name)
	h, err := m.d.FS().Create(name)
	check(err)
	_, err = h.WriteAt(data, 0)
	check(err)
	check(h.Sync())
	check(m.d.FS().SyncDir("journal"))
}

func (m *memory) remove(name string) { check(m.d.FS().Remove(name)) }

// mirrored is a real engine on the simulated disk.
type mirrored struct {
	memory
	f *scratch.Factory
	e record.Engine // the latest
}

func newMirrored(t *testing.T, engine string) *mirrored {
	m := &mirrored{memory: memory{simdisk.New()}, f: scratch.New(engine)}
	m.f.FileBytes = 1 << 10
	t.Cleanup(func() {
		m.end()
		must(t, m.f.Close())
	})
	return m
}

// end is what remains to be done of an engine whose process died.
func (m *mirrored) end() {
	if m.e != nil {
		check(m.e.Close())
	}
}

func (m *mirrored) engine() record.Engine {
	m.end()
	m.e = m.f.Engine(m.d.FS(), "journal")
	return m.e
}

func (m *mirrored) crash(keep simdisk.Keep, rng *rand.Rand) {
	m.memory.crash(keep, rng)
	m.end()
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// real is an engine in a folder. A crash copies the folder: engines sync every
// file but the newest before they go on, and every folder entry at once, so only
// the newest file's unsynced bytes can be lost.
type real struct {
	t    *testing.T
	dir  string
	make func(dir string) record.Engine
	size map[string]int // bytes of each file when it was last durable
}

// scratchFolder is one whose syncs cost nothing, if this system has one: crashes
// are played here, not suffered.
func scratchFolder(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "disktest")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func newReal(t *testing.T) *real {
	make := func(dir string) record.Engine { return journal.New(dir + "/journal") }
	return &real{t: t, dir: scratchFolder(t), make: make}
}

func newTidwall(t *testing.T) *real {
	r := newReal(t)
	r.make = func(dir string) record.Engine { return journal.NewTidwall(dir + "/journal") }
	return r
}

func (r *real) engine() record.Engine { return r.make(r.dir) }

func (r *real) files() (names []string) {
	check(filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != "LOCK" {
			names = append(names, path)
		}
		return err
	}))
	return names
}

func (r *real) load(name string) []byte {
	b, err := os.ReadFile(name)
	check(err)
	return b
}

func (r *real) store(name string, data []byte) {
	check(os.MkdirAll(filepath.Dir(name), 0o750))
	check(os.WriteFile(name, data, 0o640))
}

func (r *real) remove(name string) { check(os.Remove(name)) }

func (r *real) durable() {
	r.size = map[string]int{}
	for _, name := range r.files() {
		r.size[name[len(r.dir):]] = len(r.load(name))
	}
}

func (r *real) crash(keep simdisk.Keep, rng *rand.Rand) {
	to, size := scratchFolder(r.t), map[string]int{}
	names := r.files()
	for i, name := range names {
		data, rel := r.load(name), name[len(r.dir):]
		if kept := r.size[rel]; i == len(names)-1 && kept < len(data) {
			switch keep {
			case simdisk.KeepNone:
				data = data[:kept]
			case simdisk.KeepSome:
				data = data[:kept+rng.IntN(len(data)-kept+1)]
				clear(data[kept+rng.IntN(len(data)-kept+1):])
			}
		}
		size[rel] = len(data)
		check(os.MkdirAll(filepath.Dir(to+rel), 0o750))
		check(os.WriteFile(to+rel, data, 0o640))
	}
	// Generations without a file are folders, too.
	check(filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			return os.MkdirAll(to+path[len(r.dir):], 0o750)
		}
		return err
	}))
	r.dir, r.size = to, size
}

// TestEngine runs journals through appends, syncs, rolls, drops and crashes, and
// compares what recovery finds with what was promised.
func TestEngine(t *testing.T) {
	for name, make := range withMirrored(worlds()) {
		t.Run(name, func(t *testing.T) {
			seeds := uint64(60)
			if name == "memory" {
				seeds = 400
			}
			lost := 0
			for seed := range seeds {
				m := &journalModel{t: t, w: make(t), rng: rand.New(rand.NewPCG(seed, 7)), seed: seed}
				m.run(60)
				lost += m.lost
			}
			if lost == 0 {
				t.Fatal("no crash ever lost anything")
			}
		})
	}
}

// journalModel is what a journal must be.
type journalModel struct {
	t    *testing.T
	w    world
	rng  *rand.Rand
	seed uint64

	log     *record.Log
	records []record.Record // all ever appended and not lost, by sequence from 1
	durable int             // of them
	from    uint64          // the manifest's
	mark    record.Mark
	lost    int
}

func (m *journalModel) run(steps int) {
	m.open()
	for range steps {
		switch m.rng.IntN(12) {
		case 0, 1, 2, 3, 4, 5:
			m.append()
		case 6, 7:
			must(m.t, m.log.Sync())
			m.synced()
		case 8:
			must(m.t, m.log.Roll(m.log.Generation()+1, m.rng.Uint64()|1))
			m.synced()
		case 9:
			// A checkpoint: the manifest names the current generation.
			must(m.t, m.log.Sync())
			m.synced()
			m.from, m.mark.Sequence = m.log.Generation(), m.log.Durable()
			must(m.t, m.log.Drop(m.from))
		case 10:
			// The process stops: nothing is lost but what it held back itself.
			must(m.t, m.log.Close())
			m.open()
		case 11:
			m.w.crash(simdisk.Keep(m.rng.IntN(3)), m.rng)
			m.open()
		}
	}
	must(m.t, m.log.Close())
}

func (m *journalModel) append() {
	r := record.Record{
		Type: uint8(1 + m.rng.IntN(6)), Flags: uint8(m.rng.IntN(256)), Group: m.rng.Uint64(), Index: m.rng.Uint64(),
		Term: m.rng.Uint64(), Payload: make([]byte, m.rng.IntN(200)),
	}
	for i := range r.Payload {
		r.Payload[i] = byte(m.rng.Uint32())
	}
	seq, err := m.log.Append(r)
	must(m.t, err)
	if seq != uint64(len(m.records))+1 {
		m.t.Fatalf("seed %d: sequence %d for record %d", m.seed, seq, len(m.records)+1)
	}
	r.Sequence, r.Generation = seq, m.log.Generation()
	m.records = append(m.records, r)
}

func (m *journalModel) synced() {
	m.durable = len(m.records)
	if m.log.Durable() != uint64(m.durable) {
		m.t.Fatalf("seed %d: durable is %d, want %d", m.seed, m.log.Durable(), m.durable)
	}
	m.w.durable()
}

func (m *journalModel) open() {
	log, got, err := record.Open(m.w.engine(), m.from, m.mark, m.rng.Uint64()|1)
	if err != nil {
		m.t.Fatalf("seed %d: %v", m.seed, err)
	}
	last := int(log.Durable())
	if last < m.durable || last > len(m.records) {
		m.t.Fatalf("seed %d: recovered up to record %d; %d were durable, %d appended",
			m.seed, last, m.durable, len(m.records))
	}
	want := m.records[:last]
	for len(want) > 0 && want[0].Generation < m.from {
		want = want[1:]
	}
	if !slices.EqualFunc(got, want, sameRecord) {
		m.t.Fatalf("seed %d: recovered %d records that are not the %d appended", m.seed, len(got), len(want))
	}
	m.lost += len(m.records) - last
	m.log, m.records = log, m.records[:last]
	m.synced()
}

func sameRecord(a, b record.Record) bool {
	same := bytes.Equal(a.Payload, b.Payload)
	a.Payload, b.Payload = nil, nil
	return same && fmt.Sprint(a) == fmt.Sprint(b)
}

// TestManyOpens: a node that starts again and again leaves no file each time.
func TestManyOpens(t *testing.T) {
	for name, make := range withMirrored(worlds()) {
		t.Run(name, func(t *testing.T) {
			w := make(t)
			for i := range 20 {
				log, got, err := record.Open(w.engine(), 0, record.Mark{}, uint64(i)+1)
				must(t, err)
				if len(got) != min(i, 1) {
					t.Fatalf("open %d found %d records", i, len(got))
				}
				if i == 0 {
					_, err = log.Append(record.Record{Type: 1})
					must(t, err)
					must(t, log.Sync())
				}
				must(t, log.Close())
			}
			if n := len(w.files()); n > 2 {
				t.Fatalf("%d files are there", n)
			}
		})
	}
}
