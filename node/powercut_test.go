package node_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/disk"
	"github.com/tapedeck/tapedeck/sim/simdisk"
)

var errPowerCut = errors.New("the power is gone")

// fuse counts operations that change files; when it is burnt down nothing works.
type fuse struct {
	armed bool
	left  int
}

func (f *fuse) burn() error {
	if !f.armed {
		return nil
	}
	if f.left--; f.left < 0 {
		return errPowerCut
	}
	return nil
}

type fusedFS struct {
	disk.FS
	fuse *fuse
}

type fusedFile struct {
	disk.File
	fuse *fuse
}

func (f fusedFS) Create(name string) (disk.File, error) {
	if err := f.fuse.burn(); err != nil {
		return nil, err
	}
	file, err := f.FS.Create(name)
	if err != nil {
		return nil, err
	}
	return fusedFile{file, f.fuse}, nil
}

func (f fusedFS) Open(name string) (disk.File, error) {
	file, err := f.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return fusedFile{file, f.fuse}, nil
}

func (f fusedFS) Remove(name string) error {
	if err := f.fuse.burn(); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f fusedFS) Rename(from, to string) error {
	if err := f.fuse.burn(); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

func (f fusedFS) MkdirAll(dir string) error {
	if err := f.fuse.burn(); err != nil {
		return err
	}
	return f.FS.MkdirAll(dir)
}

func (f fusedFS) SyncDir(dir string) error {
	if err := f.fuse.burn(); err != nil {
		return err
	}
	return f.FS.SyncDir(dir)
}

func (f fusedFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.fuse.burn(); err != nil {
		return 0, err
	}
	return f.File.WriteAt(b, off)
}

func (f fusedFile) Truncate(size int64) error {
	if err := f.fuse.burn(); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f fusedFile) Sync() error {
	if err := f.fuse.burn(); err != nil {
		return err
	}
	return f.File.Sync()
}

// A node loses power after each of its file operations in turn, over several
// checkpoints: journal generations, segments, state, manifest, and what is
// removed behind them. It always comes back with everything it acknowledged.
func TestAPowerCutAfterEachFileOperation(t *testing.T) {
	modes := []simdisk.Keep{simdisk.KeepNone, simdisk.KeepSome, simdisk.KeepAll}
	checkpoints, cut := uint64(0), 0
	for ; checkpoints < 4; cut++ {
		c := newCluster(t, 1, core.Limits{CheckpointBytes: 512, SegmentBytes: 1 << 10, HotBytes: 1})
		n := c.nodes["n1"]
		c.createTopic("orders", 1, 1)
		c.publish("n1", "orders", "k", "first")
		f := &fuse{}
		n.wrap = func(fs disk.FS) disk.FS { return fusedFS{fs, f} }
		c.crash("n1")
		c.start("n1")
		had := []string{"first"}
		f.armed, f.left = true, cut
		before := n.host.Shard().Load().Checkpoints
		n.fatal = func(error) { checkpoints = n.host.Shard().Load().Checkpoints - before; n.host = nil; n.life++ }
		for i := 0; n.host != nil; i++ {
			c.seq++
			id, payload := c.seq, fmt.Sprint("m", i)
			n.host.Step(core.Request{ID: id, Deadline: c.now.Add(30 * time.Second), Call: &call.Publish{Topic: "orders",
				Messages: []batch.Message{{Key: []byte("k"), Payload: slices.Concat([]byte(payload), make([]byte, 200))}}}})
			c.until("an answer or the end", func() bool { return n.host == nil || n.replies[id] != nil })
			if r := n.replies[id]; r != nil && r.err == nil {
				had = append(had, payload)
			}
		}
		n.disk.Crash(simdisk.CrashMode{Keep: modes[cut%len(modes)]}, rand.New(rand.NewPCG(7, uint64(cut))))
		n.fatal, n.wrap = nil, nil
		c.start("n1")
		got := c.fetchAll("n1", "orders", 0)
		for i, want := range had {
			if i >= len(got) || got[i][:min(len(got[i]), len(want))] != want {
				t.Fatalf("power cut after %d operations: message %d of %d acknowledged is not there", cut, i, len(had))
			}
		}
		if len(got) > len(had)+1 {
			t.Fatalf("power cut after %d operations: %d messages, %d acknowledged", cut, len(got), len(had))
		}
		c.publish("n1", "orders", "k", "last")
	}
	if cut < 100 {
		t.Fatalf("only %d operations were cut short", cut)
	}
}
