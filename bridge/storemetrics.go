package bridge

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Space says how much room a store on a local disk has, and when it was backed up. *pebblekv.DB
// implements it.
type Space interface {
	// FreeSpace returns how many bytes of the disk are free, and Size how many the store has.
	FreeSpace() (uint64, error)
	Size() (int64, error)
	// LastBackup returns when the store was last backed up, zero if that is not known.
	LastBackup() time.Time
}

func storeDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("pq_store_"+name, help, nil, nil)
}

var (
	storeFree    = storeDesc("free_bytes", "Bytes of the embedded store's disk that are free.")
	storeSize    = storeDesc("size_bytes", "Bytes that the files of the embedded store have.")
	storeReserve = storeDesc("reserve_bytes",
		"Bytes that are kept free: with less, pushes are refused.")
	storeBackup = storeDesc("last_backup_timestamp_seconds",
		"When pqbridge last backed up the embedded store; missing if it never did.")
)

// collectStore shows the Space of the store. What cannot be found out is left out.
func (b *Bridge) collectStore(ch chan<- prometheus.Metric) {
	space := b.options.Space
	show := func(desc *prometheus.Desc, value float64) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}

	show(storeReserve, float64(b.options.Reserve))
	if free, err := space.FreeSpace(); err == nil {
		show(storeFree, float64(free))
	}
	if size, err := space.Size(); err == nil {
		show(storeSize, float64(size))
	}
	if at := space.LastBackup(); !at.IsZero() {
		show(storeBackup, float64(at.Unix()))
	}
}
