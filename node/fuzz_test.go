package node_test

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"sync"
	"testing"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/disk/record"
	"github.com/tapedeck/tapedeck/node"
	"github.com/tapedeck/tapedeck/sim/simdisk"
)

// soundFolder is the disk of a node that stopped after checkpoints, with a
// partition, a subscription and what their groups hold.
var soundFolder struct {
	once sync.Once
	disk *simdisk.Disk
}

func folderToSpoil(t *testing.T) *simdisk.Disk {
	soundFolder.once.Do(func() {
		c := newCluster(t, 1, small())
		c.createTopic("orders", 1, 1)
		must[*call.CreateSubscriptionCallResult](t)(c.call("n1", &call.CreateSubscriptionCall{Topic: "orders", Name: "mail"}))
		w := c.writer()
		w.send("n1", 30)
		c.until("a folder between two checkpoints", func() bool {
			return c.settled("n1") && len(filesIn(c.nodes["n1"].disk, "checkpoint-")) == 1
		})
		soundFolder.disk = c.nodes["n1"].disk.Clone()
		soundFolder.disk.Crash(simdisk.CrashMode{Keep: simdisk.KeepAll}, nil)
	})
	return soundFolder.disk.Clone()
}

// framed is a file's content as the node frames it: what is fuzzed is behind the
// checksum, which would refuse nearly everything.
func framed(content []byte) []byte {
	out := binary.LittleEndian.AppendUint32(nil, 0x4b444154)
	out = append(out, 0, 0, 0, 0)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(content)))
	out = append(out, content...)
	binary.LittleEndian.PutUint32(out[4:], crc32.Checksum(out[8:], crc32.MakeTable(crc32.Castagnoli)))
	return out
}

// openSpoiled puts content in place of a file, and opens and verifies the folder:
// that ends in a node or a refusal which names a file and says what to do.
func openSpoiled(t *testing.T, d *simdisk.Disk, name string, content []byte) {
	fsys := d.FS()
	if err := fsys.Remove(name); err != nil {
		t.Fatal(err)
	}
	h, err := fsys.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.WriteAt(content, 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(h.Sync(), h.Close(), fsys.SyncDir(".")); err != nil {
		t.Fatal(err)
	}
	if _, err := node.Verify(fsys, simdisk.NewEngine(fsys, "journal")); err != nil {
		t.Fatalf("verify: %v", err)
	}
	cfg := core.Config{Self: "n1", Peers: []model.Node{{ID: "n1", Address: "n1"}}, Limits: small()}
	host, err := node.Open(node.Config{Core: cfg, FS: fsys, Journal: simdisk.NewEngine(fsys, "journal"),
		NewDisk: 5, Random: 5, Notice: func(string) {}})
	if err == nil {
		_ = host.Close()
		return
	}
	var r *record.Refused
	if !errors.As(err, &r) || r.File == "" || r.Cause == "" || r.Advice == "" {
		t.Fatalf("neither opened nor refused with its reason: %v", err)
	}
}

func fuzzFile(f *testing.F, name string) {
	f.Fuzz(func(t *testing.T, content []byte) {
		d := folderToSpoil(t)
		at := filesIn(d, name)
		if len(at) != 1 {
			t.Fatalf("%d files are named %s: %v", len(at), name, at)
		}
		openSpoiled(t, d.Clone(), at[0], content)
		openSpoiled(t, d, at[0], framed(content))
	})
}

func FuzzIdentity(f *testing.F) { fuzzFile(f, "IDENTITY") }

func FuzzManifest(f *testing.F) { fuzzFile(f, "MANIFEST") }

func FuzzCheckpoint(f *testing.F) { fuzzFile(f, "checkpoint-") }
