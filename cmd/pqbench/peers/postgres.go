package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/bench"
	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/process"
)

// poolSize is how many connections the clients of PostgreSQL share: several for each processor, so
// that transactions can share a sync.
const poolSize = 16

// postgreSQL keeps a queue in a table with an index.
func postgreSQL() bench.Peer {
	program, missing := find("postgres", "/usr/lib/postgresql/*/bin")
	initdb, _ := find("initdb", filepath.Dir(program))
	return bench.Peer{
		Name:    "PostgreSQL",
		Missing: missing,
		Relaxed: true,
		Choice: fmt.Sprintf("%s, a pool of %d connections; INSERT; DELETE of the first by (priority, id) FOR UPDATE SKIP LOCKED, "+
			"for work a transaction that selects it so, and deletes it before it commits", library("github.com/jackc/pgx/v5"), poolSize),
		Notes: "fsync and synchronous_commit on, shared_buffers 1 GB, otherwise defaults. The lease is an open transaction, which ends with the connection.",
		Start: func(ctx context.Context, dir string, relaxed bool) (bench.PeerServer, error) {
			data := filepath.Join(dir, "data")
			as, err := notRoot(dir)
			if err != nil {
				return nil, err
			}

			if _, err := os.Stat(data); err != nil {
				args := []string{initdb, "-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8", "--no-locale"}
				p, err := process.Start(ctx, filepath.Dir(dir), "initdb", args, nil, as)
				if err != nil {
					return nil, err
				}
				if <-p.Exited; !p.Succeeded() {
					return nil, fmt.Errorf("%w\n(the folder must be reachable for the user postgres: name another with --dir)", p.Failure())
				}
			}

			fsync := "on"
			if relaxed {
				fsync = "off"
			}

			s, err := startServer(ctx, dir, "postgres", syscall.SIGINT, func(host, port string) []string {
				return []string{
					program, "-D", data, "-c", "listen_addresses=" + host, "-c", "port=" + port, "-c", "unix_socket_directories=",
					"-c", "fsync=" + fsync, "-c", "synchronous_commit=on", "-c", "shared_buffers=1GB",
				}
			}, as)
			if err != nil {
				return nil, err
			}

			p := &postgresServer{server: s}
			return p, s.awaitVersion(ctx, func() (version string, err error) {
				pool, err := p.pool(ctx)
				if err != nil {
					return "", err
				}
				defer pool.Close()
				err = pool.QueryRow(ctx, "SHOW server_version").Scan(&version)
				return version, err
			})
		},
	}
}

// notRoot makes a command run as the user postgres if it would run as root, which PostgreSQL
// refuses.
func notRoot(dir string) (func(*exec.Cmd), error) {
	if os.Geteuid() != 0 {
		return func(*exec.Cmd) {}, nil
	}

	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root: %w", err)
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}

	return func(cmd *exec.Cmd) {
		cmd.Dir = dir // it cannot be in a folder that it must not read
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}, os.Chown(dir, uid, gid)
}

type postgresServer struct{ *server }

func (s *postgresServer) pool(ctx context.Context) (*pgxpool.Pool, error) {
	return pgxpool.New(ctx, fmt.Sprintf("postgres://bench@%s/postgres?pool_max_conns=%d", s.address, poolSize))
}

func (s *postgresServer) Connect(ctx context.Context, clients, _, priorities int) ([]*bench.PeerClient, error) {
	pool, err := s.pool(ctx)
	if err != nil {
		return nil, err
	}
	s.onStop(pool.Close)

	table := "queue_" + strconv.Itoa(priorities)
	for _, sql := range []string{
		"CREATE TABLE IF NOT EXISTS %[1]s (id bigserial PRIMARY KEY, priority int NOT NULL, value bytea NOT NULL)",
		"CREATE INDEX IF NOT EXISTS %[1]s_order ON %[1]s (priority, id)",
		"ANALYZE %[1]s", // a database in use has statistics
	} {
		if _, err := pool.Exec(ctx, fmt.Sprintf(sql, table)); err != nil {
			return nil, err
		}
	}
	return slices.Repeat([]*bench.PeerClient{postgresClient(pool, table)}, clients), nil
}

func postgresClient(pool *pgxpool.Pool, table string) *bench.PeerClient {
	first := fmt.Sprintf("SELECT id FROM %s ORDER BY priority, id LIMIT $1 FOR UPDATE SKIP LOCKED", table)
	reserve := fmt.Sprintf("SELECT id, value FROM %s ORDER BY priority, id LIMIT $1 FOR UPDATE SKIP LOCKED", table)
	remove := fmt.Sprintf("DELETE FROM %s WHERE id = ANY($1)", table)
	popMany := fmt.Sprintf("DELETE FROM %s WHERE id = ANY(ARRAY(%s)) RETURNING value", table, first)

	collect := func(rows pgx.Rows, err error) ([][]byte, error) {
		if err != nil {
			return nil, err
		}
		all, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
		if err == nil && len(all) == 0 {
			err = bench.ErrEmpty
		}
		return all, err
	}

	type item struct {
		ID    int64
		Value []byte
	}

	work := func(ctx context.Context, n int) (values [][]byte, err error) {
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, reserve, n)
			if err != nil {
				return err
			}
			items, err := pgx.CollectRows(rows, pgx.RowToStructByPos[item])
			if err != nil {
				return err
			}
			if len(items) == 0 {
				return bench.ErrEmpty
			}

			ids := make([]int64, len(items))
			for i := range items {
				ids[i] = items[i].ID
				values = append(values, items[i].Value)
			}
			_, err = tx.Exec(ctx, remove, ids)
			return err
		})
		return values, err
	}

	return &bench.PeerClient{
		Pushes: both, Pops: both, Works: both,
		Push: postgresPush(pool, table),
		Pop: func(ctx context.Context, n int) ([][]byte, error) {
			return collect(pool.Query(ctx, popMany, n))
		},
		Work: work,
	}
}

// postgresPush has a statement for one item, and one for many.
func postgresPush(pool *pgxpool.Pool, table string) func(context.Context, []bench.PeerItem) error {
	insert := fmt.Sprintf("INSERT INTO %s (priority, value) VALUES ($1, $2)", table)
	insertMany := fmt.Sprintf("INSERT INTO %s (priority, value) SELECT * FROM unnest($1::int[], $2::bytea[])", table)
	return func(ctx context.Context, items []bench.PeerItem) error {
		if len(items) == 1 {
			_, err := pool.Exec(ctx, insert, items[0].Priority, items[0].Value)
			return err
		}

		priorities, values := make([]int, len(items)), make([][]byte, len(items))
		for i, item := range items {
			priorities[i], values[i] = item.Priority, item.Value
		}
		_, err := pool.Exec(ctx, insertMany, priorities, values)
		return err
	}
}
