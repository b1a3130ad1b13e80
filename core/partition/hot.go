package partition

import (
	"sort"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/model"
)

// hot keeps the newest batches, contiguous and ending at the applied next
// offset, in the very bytes of their raft entries. It holds at most limit bytes,
// or one batch.
type hot struct {
	limit int
	views []batch.View // live ones are views[head:]
	head  int
	bytes int
}

func (r *hot) live() []batch.View { return r.views[r.head:] }

func (r *hot) clear() { r.views, r.head, r.bytes = nil, 0, 0 }

func (r *hot) push(v batch.View) {
	if r.head > 64 && r.head > len(r.views)/2 {
		n := copy(r.views, r.live())
		clear(r.views[n:])
		r.views, r.head = r.views[:n], 0
	}
	r.views = append(r.views, v)
	r.bytes += len(v)
	for r.bytes > r.limit && len(r.live()) > 1 {
		r.pop()
	}
}

func (r *hot) pop() {
	r.bytes -= len(r.views[r.head])
	r.views[r.head] = nil
	r.head++
}

// dropBelow forgets batches that end at or below the offset.
func (r *hot) dropBelow(o model.Offset) {
	for len(r.live()) > 0 && r.live()[0].Next() <= o {
		r.pop()
	}
}

// find returns the position of the batch that holds the offset, or -1.
func (r *hot) find(o model.Offset) int {
	l := r.live()
	if len(l) == 0 || o < l[0].Base() || o >= l[len(l)-1].Next() {
		return -1
	}
	return sort.Search(len(l), func(i int) bool { return l[i].Next() > o })
}

// firstAt returns the position of the first batch appended at t or later, and
// len when there is none.
func (r *hot) firstAt(t model.Wall) int {
	l := r.live()
	return sort.Search(len(l), func(i int) bool { return l[i].AppendTime() >= t })
}

// read returns batches from position i on, as many as maxBytes allow but at
// least one, and the offset after them. A single one is not copied.
func (r *hot) read(i, maxBytes int) ([]byte, model.Offset) {
	l := r.live()[i:]
	n, size := 1, len(l[0])
	for n < len(l) && size+len(l[n]) <= maxBytes {
		size += len(l[n])
		n++
	}
	if n == 1 {
		return l[0], l[0].Next()
	}
	run := make([]byte, 0, size)
	for _, v := range l[:n] {
		run = append(run, v...)
	}
	return run, l[n-1].Next()
}
