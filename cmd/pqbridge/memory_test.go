package main

import (
	"bytes"
	"log/slog"
	"math"
	"strings"
	"testing"
)

// Limits that nobody has configured shrink with the memory, and the rest fits.
func TestFitMemory(t *testing.T) {
	for _, limit := range []int64{leastMemory, 128 << 20, 256 << 20, enoughMemory - 1} {
		for _, store := range []string{storeEmbedded, storeFDB} {
			c := defaultConfig()
			c.Store = store
			var log bytes.Buffer
			must(t, c.fitMemory(limit, slog.New(slog.NewTextHandler(&log, nil))))

			if err := c.validate(); err != nil {
				t.Errorf("%d bytes: %v", limit, err)
			}

			held := int64(c.MaxPendingBytes) + engineMemory(c) + storeHeap(c)
			if store == storeEmbedded && held > limit/2 {
				t.Errorf("%d bytes: buffers may take %d: want at most half", limit, held)
			}

			room := heapRoom(c, limit)
			if room < limit/4 ||
				room+engineMemory(c) > limit && (store == storeEmbedded || limit > 128<<20) {
				t.Errorf("%d bytes: %d for Go's heap, %d for the engine",
					limit, room, engineMemory(c))
			}

			if !strings.Contains(log.String(), "PQ_MAX_PENDING_BYTES=") {
				t.Errorf("the log does not say what has changed: %s", log.String())
			}
		}
	}

	c := defaultConfig()
	if err := c.fitMemory(enoughMemory, slog.Default()); err != nil || *c != *defaultConfig() {
		t.Errorf("with enough memory: %+v (%v), want the defaults", *c, err)
	}

	if room := heapRoom(c, math.MaxInt64); room != math.MaxInt64 {
		t.Errorf("without a limit there is room for %d bytes", room)
	}
}

// FoundationDB's client has memory of its own for each lane, so there are fewer lanes, and Go's
// heap gets the rest.
func TestFitMemoryOfFoundationDB(t *testing.T) {
	for limit, want := range map[int64]int{
		leastMemory:      1,
		128 << 20:        1,
		256 << 20:        2,
		enoughMemory - 1: 3,
	} {
		c := defaultConfig()
		c.Store = storeFDB
		must(t, c.fitMemory(limit, slog.New(slog.DiscardHandler)))

		if c.Lanes != want {
			t.Errorf("%d bytes: %d lanes, want %d", limit, c.Lanes, want)
		}
	}

	c := defaultConfig()
	c.Store, c.Lanes = storeFDB, 5
	if err := c.fitMemory(128<<20, slog.New(slog.DiscardHandler)); err != nil || c.Lanes != 5 {
		t.Errorf("%d lanes (%v), want 5 as configured", c.Lanes, err)
	}

	c.Lanes = 0
	if got, want := engineMemory(c), int64(168<<20); got != want {
		t.Errorf("%d bytes for the client of FoundationDB with four lanes, want %d", got, want)
	}
}

// Configured values stay as they are, whatever the memory.
func TestFitMemoryKeepsWhatIsConfigured(t *testing.T) {
	t.Setenv("PQ_MAX_PENDING_BYTES", "67108864")
	c, err := loadConfig(false)
	must(t, err)
	must(t, c.fitMemory(leastMemory, slog.New(slog.DiscardHandler)))

	if c.MaxPendingBytes != 64<<20 || c.EmbeddedCacheSize >= 32<<20 {
		t.Errorf(
			"PQ_MAX_PENDING_BYTES %d: want it as configured; PQ_EMBEDDED_CACHE %d: want it smaller",
			c.MaxPendingBytes, c.EmbeddedCacheSize)
	}
}

// The leaf node connection has a share of the memory that there is.
func TestLeafMemory(t *testing.T) {
	for room, want := range map[int64]int64{
		50 << 20:      10 << 20,
		170 << 20:     34 << 20,
		math.MaxInt64: 320 << 20,
	} {
		if got := (&config{LeafURL: "nats-leaf://x"}).leafMemory(room); got != want {
			t.Errorf("room for %d bytes: %d for the leaf node connection, want %d", room, got, want)
		}
	}
	if got := new(config).leafMemory(1 << 30); got != 0 {
		t.Errorf("%d bytes without a leaf node connection", got)
	}
}

// The service does not start where a few messages could have it killed.
func TestTooLittleMemory(t *testing.T) {
	t.Parallel()

	dev := startDev(t, "PQ_DATA_DIR="+t.TempDir(), "GOMEMLIMIT=128MiB") // which is enough
	dev.says("there is little memory")
	c := defaultConfig()

	err := c.fitMemory(leastMemory-1, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "67108863 bytes") ||
		!strings.Contains(err.Error(), "want at least 67108864") {
		t.Errorf("error %v: want one that says how much there is and how much is wanted", err)
	}
}
