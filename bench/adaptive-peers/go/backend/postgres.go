// SPDX-License-Identifier: MIT

// The kind before a real database. A request is a query that adds up rowsRead
// rows of a table, which a hang locks against readers, as a change of its
// columns would. Of a caller that went away the query is cancelled, as pgx does
// it: the connection is closed and made anew.
package main

import (
	"context"
	"fmt"
	"math/rand"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	connections = 8
	rowsAll     = 400000
	rowsRead    = 16000
	makeTable   = `
		CREATE UNLOGGED TABLE orders AS
		SELECT id, id %% 97 AS amount, md5(id::text) AS note
		FROM generate_series(1, %d) AS id`
	makeIndex = "CREATE INDEX orders_id ON orders (id)"
	isMade    = "SELECT to_regclass('orders') IS NOT NULL"
	query     = `
		SELECT count(*), sum(amount), max(note) FROM orders
		WHERE id > $1 AND id <= $2`
)

type postgres struct {
	pool   *pgxpool.Pool
	locker *pgx.Conn // holds the lock while the table hangs
	skip   bool
	rows   atomic.Int64

	mutex sync.Mutex // of lock
	lock  pgx.Tx     // nil: no hang
}

// prepare makes the table, unless an earlier backend has.
func prepare(ctx context.Context, conn *pgx.Conn) error {
	var made bool
	err := conn.QueryRow(ctx, isMade).Scan(&made)
	if err != nil || made {
		return err
	}
	for _, statement := range []string{fmt.Sprintf(makeTable, rowsAll),
		makeIndex, "VACUUM ANALYZE orders"} {
		if _, err = conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func newPostgres(url string, skip bool) (*postgres, error) {
	ctx := context.Background()
	locker, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	if err = prepare(ctx, locker); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	p := &postgres{pool: pool, locker: locker, skip: skip}
	p.rows.Store(rowsRead)
	return p, nil
}

func (p *postgres) set(slow float64, hang bool) error {
	p.rows.Store(int64(rowsRead * slow))
	p.mutex.Lock()
	defer p.mutex.Unlock()
	ctx := context.Background()
	if !hang && p.lock != nil {
		lock := p.lock
		p.lock = nil
		return lock.Rollback(ctx)
	}
	if !hang || p.lock != nil {
		return nil
	}
	lock, err := p.locker.Begin(ctx)
	if err == nil {
		_, err = lock.Exec(ctx,
			"LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
		p.lock = lock
	}
	return err
}

func (p *postgres) ask(ctx context.Context) error {
	rows := p.rows.Load()
	first := rand.Int63n(rowsAll - rows)
	var count, sum int64
	var note string
	err := p.pool.QueryRow(ctx, query, first, first+rows).Scan(&count, &sum,
		&note)
	if err == nil && count != rows {
		err = fmt.Errorf("%d rows of %d", count, rows)
	}
	return err
}

func (p *postgres) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	if !p.skip {
		ctx = context.WithoutCancel(ctx)
	}
	if err := p.ask(ctx); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (p *postgres) capacity(d time.Duration) (float64, error) {
	var asked atomic.Int64
	failures := make(chan error, connections)
	begin := time.Now()
	for i := 0; i < connections; i++ {
		go func() {
			var err error
			for err == nil && time.Since(begin) < d {
				err = p.ask(context.Background())
				asked.Add(1)
			}
			failures <- err
		}()
	}
	var failed error
	for i := 0; i < connections; i++ {
		if err := <-failures; err != nil {
			failed = err
		}
	}
	return float64(asked.Load()) / time.Since(begin).Seconds(), failed
}
