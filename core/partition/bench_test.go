package partition

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
)

// benchHost keeps nothing but proposals under way: the cost measured is the machine's.
type benchHost struct {
	group.Host // nil: what is not overridden below must not be called
	cat        model.Catalog
	wall       model.Wall
	proposed   [][]byte
	replies    int
}

func (h *benchHost) Now() model.Mono                              { return model.Mono(h.wall) }
func (h *benchHost) Wall() model.Wall                             { h.wall++; return h.wall }
func (h *benchHost) WallTrusted() bool                            { return true }
func (h *benchHost) Propose(data []byte) bool                     { h.proposed = append(h.proposed, data); return true }
func (h *benchHost) Reply(group.Ref, call.Response, *model.Error) { h.replies++ }
func (h *benchHost) Wake(model.Mono)                              {}
func (h *benchHost) Catalog() model.Catalog                       { return h.cat }
func (h *benchHost) SegmentAppend([]byte)                         {}
func (h *benchHost) SegmentRoll(model.Offset)                     {}

// BenchmarkAppendApply takes a publish from request to answer, raft left out.
func BenchmarkAppendApply(b *testing.B) {
	for _, producer := range []model.ProducerID{0, 1} {
		for _, size := range []int{1 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("producer=%t/bytes=%d", producer > 0, size), func(b *testing.B) {
				g, m := lead(b, Limits{})
				h := &benchHost{cat: g.Cat, wall: g.WallNow}
				v := batch.Encode([]batch.Message{{Payload: make([]byte, size)}}, from(producer, 1, 0))
				req := call.Append{Batch: v}
				b.ReportAllocs()
				b.SetBytes(int64(len(v)))
				n := 0
				for b.Loop() {
					// The bytes are reused, which only this benchmark may do.
					v.StampWith(0, 0, 0)
					setSequence(v, model.Sequence(n))
					n++
					m.Handle(h, group.Ref(n), &req)
					for _, data := range h.proposed {
						m.Apply(h, group.Entry{Data: data})
					}
					h.proposed = h.proposed[:0]
				}
				if int(m.Next()) < n || h.replies < n {
					b.Fatalf("%d appended, %d answered of %d", m.Next(), h.replies, n)
				}
			})
		}
	}
}

// setSequence changes a batch's sequence in place; only checksums would tell.
func setSequence(v batch.View, s model.Sequence) { binary.LittleEndian.PutUint64(v[64:], uint64(s)) }
