package partition

import (
	"errors"
	"slices"
	"testing"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group/grouptest"
	"github.com/tapedeck/tapedeck/core/model"
)

// regions makes a batch of a message per letter: e for eu, u for us.
func regions(letters string, o batch.Options) batch.View {
	var ms []batch.Message
	for _, l := range letters {
		ms = append(ms, batch.Message{Attributes: []batch.Attribute{{Name: "region", Value: string(l) + "u"}}})
	}
	return batch.Encode(ms, o)
}

func sifted(t *testing.T, h *grouptest.Host, o model.Offset) *call.ReadResult {
	t.Helper()
	resp, err := h.Do(&call.Read{Offset: o, Filter: `attributes.region == "eu"`})
	if err != nil {
		t.Fatal(err)
	}
	return resp.(*call.ReadResult)
}

// Batches without a wanted message are not sent, and all that is not wanted is
// named, the same from memory and from segments.
func TestReadWithAFilter(t *testing.T) {
	for _, place := range []string{"hot", "cold"} {
		h, m := lead(t, Limits{})
		for _, letters := range []string{"uue", "uuu", "eee", "eu"} {
			put(t, h, regions(letters, batch.Options{}))
		}
		if place == "cold" {
			m.hot.clear()
		}
		res := sifted(t, h, 1)
		views, err := batch.Split(res.Run)
		if err != nil || len(views) != 3 || views[0].Base() != 0 || views[1].Base() != 6 || res.Next != 11 {
			t.Fatalf("%s: %d batches up to %d, %v", place, len(views), res.Next, err)
		}
		if want := []call.Range{{From: 1, To: 2}, {From: 3, To: 6}, {From: 10, To: 11}}; !slices.Equal(res.Filtered, want) {
			t.Fatalf("%s: %+v", place, res.Filtered)
		}
	}
}

// What cannot be unpacked is left to the reader.
func TestAFilterTakesWhatItCannotRead(t *testing.T) {
	h, m := lead(t, Limits{})
	pack := func(dst, raw []byte) []byte { return append(dst, raw...) }
	put(t, h, regions("uu", batch.Options{Compression: batch.S2, Pack: pack}))
	if res := sifted(t, h, 0); len(res.Run) == 0 || len(res.Filtered) != 0 {
		t.Fatalf("%+v", res.Filtered)
	}
	m.cfg.Unpack = func(_ batch.Compression, packed []byte, size int) ([]byte, error) {
		if len(packed) != size {
			return nil, errors.New("size")
		}
		return packed, nil
	}
	if res := sifted(t, h, 0); len(res.Run) != 0 || len(res.Filtered) != 1 || res.Next != 2 {
		t.Fatalf("%+v", res)
	}
}

func TestABadFilterIsRefused(t *testing.T) {
	h, _ := lead(t, Limits{})
	_, err := h.Do(&call.Read{Filter: "attributes."})
	wantErr(t, err, model.InvalidArgument, "")
}
