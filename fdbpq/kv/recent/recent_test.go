package recent_test

import (
	"fmt"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq/kv/recent"
)

// What is used stays, and of the rest the oldest goes, within the bound.
func TestMap(t *testing.T) {
	m := recent.NewMap(1000, func(_ string, size int) int { return size })
	set := func(key string, size int) {
		m.Age()
		m.Set(key, size)
		if m.Size() > 600 {
			t.Errorf("%d bytes in one generation", m.Size())
		}
	}

	set("often", 1)
	for i := range 100 {
		set(fmt.Sprint(i), 100)
		if _, ok := m.Get([]byte("often")); !ok {
			t.Fatalf("what is used was forgotten after %d others", i)
		}
	}
	for i, want := range map[int]bool{50: false, 98: true, 99: true} {
		if _, ok := m.Get(fmt.Append(nil, i)); ok != want {
			t.Errorf("%d is there: %t, want %t", i, ok, want)
		}
	}

	m.Clear()
	if _, ok := m.Get([]byte("98")); ok || m.Size() != 0 {
		t.Errorf("%d bytes are left", m.Size())
	}
}

// One value that takes more than half of the bound does not stay because it is used.
func TestMapOfALargeValue(t *testing.T) {
	m := recent.NewMap(1000, func(_ string, size *int) int { return *size })
	size := 100
	m.Set("large", &size)
	for range 2 {
		m.Age()
		if _, ok := m.Get([]byte("large")); !ok {
			t.Fatal("100 bytes are forgotten")
		}
	}

	size += 500
	m.Grow(500)
	m.Age()
	if _, ok := m.Get([]byte("large")); ok {
		t.Error("600 of 1,000 bytes are one value")
	}
}

// A deleted value is forgotten, whichever generation it is in, and takes no room.
func TestMapDelete(t *testing.T) {
	m := recent.NewMap(1000, func(_ string, size int) int { return size })
	m.Set("older", 600)
	m.Age()
	m.Set("newer", 100)

	for _, key := range []string{"older", "newer", "missing"} {
		m.Delete([]byte(key))
		if _, ok := m.Get([]byte(key)); ok {
			t.Errorf("%s is there", key)
		}
	}

	if m.Size() != 0 {
		t.Errorf("%d bytes are left", m.Size())
	}
}
