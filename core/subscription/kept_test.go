package subscription

import (
	"fmt"
	"testing"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

func (b *bench) keep(name string) *call.KeptCursors {
	b.Helper()
	return must[*call.KeptCursors](b, &call.KeepCursors{Target: target(), Name: name})
}

func (b *bench) restore(name string, only ...model.Partition) *call.Moved {
	b.Helper()
	return must[*call.Moved](b, &call.MoveCursors{Target: target(), Snapshot: name, Only: only})
}

// A snapshot is where the cursors were, over failovers and restarts; seeking to it
// is a seek like any other.
func TestSnapshotsKeepCursors(t *testing.T) {
	b := newBench(t, 2)
	d := b.pull("a", 0, 10)
	b.acked("a", d.Generation, 0, 4, 4)
	b.single("a", d.Generation, 0, 6)
	if k := b.keep("one").Snapshots[0]; k.Name != "one" || k.Cursors[0].Offset != 4 || k.Cursors[1].Offset != 0 {
		t.Fatalf("%+v", k)
	}
	b.acked("a", d.Generation, 0, 9, 9)
	b.failover()
	b.putTopic(3)
	b.machine().CatalogChanged(b.Host)
	b.Settle()
	moved := b.restore("one")
	if len(moved.To) != 3 || moved.To[0].Offset != 4 || moved.To[2].Offset != 0 {
		t.Fatalf("%+v", moved)
	}
	b.fenced("a", d.Generation, 0, 10)
	if v := b.view().Partitions[0]; v.Cursor != 4 || v.Acked != 0 {
		t.Fatalf("%+v", v)
	}
	b.seek(0, 7)
	if moved := b.restore("one", 1); len(moved.To) != 1 || b.view().Partitions[0].Cursor != 7 {
		t.Fatalf("%+v", moved)
	}
	fresh := New(b.config)
	if err := fresh.Restore(b.machine().Snapshot()); err != nil || fresh.Hash() != b.machine().Hash() {
		t.Fatalf("restored to another state: %v", err)
	}
}

func TestSnapshotsAreLimited(t *testing.T) {
	b := newBench(t, 1)
	for i := range maxKept {
		b.keep(fmt.Sprintf("s%d", i))
	}
	b.fails(&call.KeepCursors{Target: target(), Name: "more"}, model.ResourceExhausted, "")
	b.fails(&call.KeepCursors{Target: target(), Name: "s3"}, model.AlreadyExists, "")
	b.fails(&call.KeepCursors{Target: target(), Name: "S 3"}, model.InvalidArgument, "")
	must[*call.KeptCursors](b, &call.KeepCursors{Target: target(), Name: "s3", Forget: true})
	b.fails(&call.KeepCursors{Target: target(), Name: "s3", Forget: true}, model.NotFound, "")
	b.fails(&call.MoveCursors{Target: target(), Snapshot: "s3"}, model.NotFound, "")
	b.fails(&call.MoveCursors{Target: target(), Snapshot: "s4", Only: []model.Partition{1}}, model.InvalidArgument, "")
	b.keep("more")
	list := must[*call.KeptCursors](b, &call.ListCursors{Target: target()}).Snapshots
	if len(list) != maxKept || list[0].Name != "more" {
		t.Fatalf("%d, first %+v", len(list), list[0])
	}
}
