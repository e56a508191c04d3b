//go:build fdb

package fdbkv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// DB is a FoundationDB cluster as a kv.Database. It is safe for concurrent use.
type DB struct {
	handle  fdb.Database
	options Options
	open    context.Context // ends when the DB is closed
	close   context.CancelFunc
}

var _ kv.Database = (*DB)(nil)

// Built says whether this program was built with the tag fdb. Without it, Open returns an error.
const Built = true

// opening guards the binding's process-wide state, which only one goroutine may use at a time.
var opening sync.Mutex

// Open opens the cluster that o names. It does not wait for the cluster to answer; transactions do.
//
// Errors: what Options.Validate returns; a cluster file that cannot be read; an API version that
// the installed client library lacks; an API version other than the one this process already uses.
func Open(o Options) (*DB, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}

	o = o.withDefaults()

	// The client library would report this only with the first transaction.
	if o.ClusterFile != "" {
		if _, err := os.ReadFile(o.ClusterFile); err != nil {
			return nil, fmt.Errorf("fdbkv: cluster file: %w", err)
		}
	}

	opening.Lock()
	defer opening.Unlock()
	if err := selectAPIVersion(o.APIVersion); err != nil {
		return nil, err
	}

	handle, err := fdb.OpenDatabase(o.ClusterFile)
	if err != nil {
		return nil, fmt.Errorf("fdbkv: open: %w", explain(err))
	}

	return newDB(handle, o), nil
}

// New returns a DB for a database that your program has opened with the binding. The timeout is
// Options.TransactionTimeout. Keep the database open for as long as you use the DB. Close ends the
// transactions of the DB and leaves the database open.
//
// Errors: a timeout that Options.Validate refuses; a database that was never opened.
func New(handle fdb.Database, timeout time.Duration) (*DB, error) {
	o := Options{TransactionTimeout: timeout}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if handle == (fdb.Database{}) {
		return nil, errors.New("fdbkv: the database was never opened: " +
			"want one from fdb.OpenDatabase")
	}
	return newDB(handle, o.withDefaults()), nil
}

func newDB(handle fdb.Database, o Options) *DB {
	db := &DB{handle: handle, options: o}
	db.open, db.close = context.WithCancel(context.Background())
	return db
}

func selectAPIVersion(version int) error {
	if used, err := fdb.GetAPIVersion(); err == nil && used != version {
		return fmt.Errorf("fdbkv: API version %d: this process already uses version %d "+
			"and the client library cannot change it", version, used)
	} else if err == nil {
		return nil
	}

	if err := fdb.APIVersion(version); err != nil {
		return fmt.Errorf("fdbkv: API version %d: %w", version, err)
	}

	// Else transactions wait until their time is over if no client library is of the release of the
	// servers, and nothing says why.
	options := fdb.Options()
	err := errors.Join(options.SetDisableClientBypass(), options.SetFailIncompatibleClient())
	if err != nil {
		return fmt.Errorf("fdbkv: options of the client library: %w", err)
	}

	return nil
}

// Begin implements kv.Database. It waits for the read version, unlike the binding.
func (db *DB) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	t, err := db.begin(ctx, o.Blind)
	if err != nil {
		return nil, err
	}

	// The five seconds of a transaction begin here. Otherwise the first read would get the version.
	if _, err := t.tr.GetReadVersion().Get(); err != nil {
		t.Cancel()
		return nil, fmt.Errorf("fdbkv: read version: %w", t.readError(err))
	}

	return t, nil
}

// BeginRead implements kv.Database.
func (db *DB) BeginRead(ctx context.Context) (kv.ReadTransaction, error) {
	t, err := db.begin(ctx, false)
	if err != nil {
		return nil, err
	}

	// It never commits, so read conflict ranges would be of no use.
	return readTransaction{reader{t, t.tr.Snapshot()}}, nil
}

func (db *DB) begin(ctx context.Context, blind bool) (*transaction, error) {
	t := &transaction{ctx: ctx, open: db.open, blind: blind}
	if err := t.interrupted(); err != nil {
		return nil, err
	}

	var err error
	if t.tr, err = db.handle.CreateTransaction(); err != nil {
		return nil, fmt.Errorf("fdbkv: begin: %w", explain(err))
	}

	// Set on each transaction, because others may share the handle of the database.
	if err := t.tr.Options().SetTimeout(db.options.TransactionTimeout.Milliseconds()); err != nil {
		return nil, fmt.Errorf("fdbkv: transaction timeout: %w", explain(err))
	}

	// Otherwise the client library keeps maps of what was read and written, which takes a good part
	// of its time. A list of the keys written costs next to nothing.
	if blind {
		if err := t.tr.Options().SetReadYourWritesDisable(); err != nil {
			return nil, fmt.Errorf("fdbkv: blind transaction: %w", explain(err))
		}
	}

	unbindContext := context.AfterFunc(ctx, t.end)
	unbindDB := context.AfterFunc(db.open, t.end)
	t.release = func() {
		unbindContext()
		unbindDB()
		t.reset()
	}

	return t, nil
}

// Traits implements kv.Database. A transaction of FoundationDB sees only state that was durable
// before it began.
func (db *DB) Traits() kv.Traits { return kv.Traits{Shared: true} }

// Check implements kv.Database. It knows only whether the DB was closed: how the cluster is, only
// transactions can tell.
func (db *DB) Check() error {
	if db.open.Err() != nil {
		return kv.ErrClosed
	}
	return nil
}

// Close implements kv.Database. It never fails. A commit in progress fails with an error that wraps
// both kv.ErrClosed and kv.ErrCommitUnknown.
func (db *DB) Close() error {
	db.close()
	return nil
}
