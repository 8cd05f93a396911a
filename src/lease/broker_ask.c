/* SPDX-License-Identifier: MIT
 * lease/broker_ask.c - checks the ranges of an ask (NaN is in none), and
 * decides how much of it is trusted. */

#include "lease/broker_state.h"

bool weir_ask_is_sound(const struct weir_broker_ask *ask)
{
    if (!(ask->has >= 0 && ask->has <= WEIR_LEASE_UNITS_MAX) ||
        !(ask->safe >= 0 && ask->safe <= WEIR_LEASE_UNITS_MAX) ||
        ask->band_count == 0 || ask->band_count > WEIR_LEASE_BANDS_MAX)
        return false;
    for (size_t i = 0; i < ask->band_count; i++) {
        const struct weir_band *band = &ask->bands[i];
        if (!(band->wants >= 0 && band->wants <= WEIR_LEASE_UNITS_MAX) ||
            band->clients < 1 || band->clients > WEIR_CLAIM_WEIGHT_MAX)
            return false;
        for (size_t k = 0; k < i; k++)
            if (ask->bands[k].priority == band->priority)
                return false;
    }
    return true;
}

/* A holder's reported amount is trusted. For a holder that can't be pushed to
 * it is capped at the capacity, for that may be any client. (A larger amount
 * would leave no less to others.) If the capacity is leased its amount isn't
 * known. */
double weir_ask_believed(const struct weir_broker *b,
                         const struct weir_broker_ask *ask)
{
    double has = larger(ask->has, ask->safe);
    bool bounded = !ask->streams && b->expiry == WEIR_NEVER;
    return bounded ? smaller(has, b->rule.capacity) : has;
}
