package connectnet

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
)

// Messages come out as they went in, whatever the size of reads, and a prefix
// never by itself when the read has room for more.
func TestEnvelopesAreReadWhole(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		var want bytes.Buffer
		from, to := io.Pipe()
		var messages [][]byte
		for range 20 {
			m := make([]byte, r.IntN(300))
			for i := range m {
				m[i] = byte(r.Uint32())
			}
			messages = append(messages, m)
			want.Write(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(m))))
			want.Write(m)
		}
		var writer sync.WaitGroup
		writer.Go(func() {
			for _, m := range messages {
				_, _ = to.Write(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(m))))
				if len(m) > 0 {
					_, _ = to.Write(m)
				}
			}
			_ = to.Close()
		})
		e := &envelopes{ReadCloser: from}
		var got bytes.Buffer
		size := []int{1, 3, 5, 6, 64, 1024}[r.IntN(6)]
		for {
			p := make([]byte, size)
			n, err := e.Read(p)
			if n == prefixBytes && size > prefixBytes && binary.BigEndian.Uint32(p[1:]) > 0 && e.got == 0 &&
				e.left == int(binary.BigEndian.Uint32(p[1:])) {
				t.Fatalf("seed %d: a prefix came by itself", seed)
			}
			got.Write(p[:n])
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		writer.Wait()
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Fatalf("seed %d: %d bytes came out, %d went in", seed, got.Len(), want.Len())
		}
	}
}
