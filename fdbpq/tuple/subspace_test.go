package tuple

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
)

// A subspace packs and unpacks its own keys, and refuses the keys of others.
func TestSubspace(t *testing.T) {
	jobs := NewSubspace(Tuple{"pq"}).Sub("jobs")
	items := jobs.Sub("i")
	if want := (Tuple{"pq", "jobs", "i"}).Pack(); !bytes.Equal(items.Bytes(), want) {
		t.Errorf("prefix %x, want %x", items.Bytes(), want)
	}

	if got := FromBytes(items.Bytes()).Bytes(); !bytes.Equal(got, items.Bytes()) {
		t.Errorf("from bytes %x, want %x", got, items.Bytes())
	}

	key := items.Pack(Tuple{5, []byte("r")})
	got, err := items.Unpack(key)
	if want := (Tuple{int64(5), []byte("r")}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("unpacked %v, %v, want %v", got, err, want)
	}

	if got, err := jobs.Sub("m").Unpack(key); !errors.Is(err, ErrOutside) {
		t.Errorf("in another subspace: unpacked %v, %v, want ErrOutside", got, err)
	}
	if got, err := items.Unpack(items.Bytes()); err != nil || len(got) != 0 {
		t.Errorf("the prefix itself: unpacked %v, %v, want the empty tuple", got, err)
	}

	if _, err := items.Unpack(append(items.Bytes(), 0xee)); !errors.Is(err, ErrMalformed) {
		t.Errorf("malformed key: %v, want ErrMalformed", err)
	}

	begin, end := items.Range()
	if bytes.Compare(begin, key) > 0 || bytes.Compare(key, end) >= 0 {
		t.Errorf("key %x is not in the range %x to %x", key, begin, end)
	}
}

// Nothing that is handed out or in lets others change the prefix.
func TestSubspaceKeepsItsPrefix(t *testing.T) {
	raw := make([]byte, 1, 64)
	raw[0] = 'p'
	space := FromBytes(raw)
	raw[0] = 'x'
	a := space.Sub("a")
	space.Sub("b")
	key := a.Pack(Tuple{1})
	_ = append(a.Bytes(), "overwritten"...)
	a.Range()

	want := append([]byte("p"), Tuple{"a", 1}.Pack()...)
	if !bytes.Equal(key, want) || !bytes.HasPrefix(key, a.Bytes()) {
		t.Errorf("key %x, want %x", key, want)
	}
}

// The zero Subspace holds every key.
func TestZeroSubspaceIsEverything(t *testing.T) {
	var all Subspace
	begin, end := all.Range()
	if !bytes.Equal(begin, []byte{0x00}) || !bytes.Equal(end, []byte{0xff}) {
		t.Errorf("range %x to %x", begin, end)
	}
}
