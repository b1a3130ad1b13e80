package meta

import (
	"bytes"
	"testing"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/wire"
)

// What decodes must be applicable without a panic and encode to what decodes alike.
func FuzzCommand(f *testing.F) {
	for _, c := range refusals {
		f.Add(wire.Encode(&command{sequence: 3, wall: -4, request: call.Encode(nil, c.req)}))
	}
	f.Add([]byte{})
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, data []byte) {
		cmd, req, err := decodeCommand(data)
		if err != nil {
			return
		}
		again, req2, err := decodeCommand(wire.Encode(&command{cmd.sequence, cmd.wall, call.Encode(nil, req)}))
		if err != nil || again.sequence != cmd.sequence || again.wall != cmd.wall {
			t.Fatalf("%+v came back as %+v, %v", cmd, again, err)
		}
		if !bytes.Equal(call.Encode(nil, req), call.Encode(nil, req2)) {
			t.Fatalf("%+v came back as %+v", req, req2)
		}
		_, m := prepared(t)
		m.state.apply(req)
		if err := m.state.check(); err != nil {
			t.Fatal(err)
		}
	})
}

// Bytes are either refused or restored to a state that holds the invariants.
func FuzzRestore(f *testing.F) {
	_, m := prepared(f)
	f.Add(m.Snapshot())
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, data []byte) {
		m := New(founding(1))
		before := m.Snapshot()
		if m.Restore(data) != nil {
			if !bytes.Equal(before, m.Snapshot()) {
				t.Fatal("a refused snapshot changed the state")
			}
			return
		}
		again := New(founding(1))
		if err := again.Restore(m.Snapshot()); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again.Snapshot(), m.Snapshot()) {
			t.Fatal("restored twice, two states")
		}
	})
}
