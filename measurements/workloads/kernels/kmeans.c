/* Steps of k-means (Lloyd): assign each point to the nearest of 8 centres, then move the centres
   to the means of their points. Floating-point arithmetic on 96 KB of points in 8 dimensions. */

#include "bare_metal.h"

#define POINTS 1500
#define DIMENSIONS 8
#define CENTRES 8
#define STEPS 2

static double points[POINTS][DIMENSIONS] IN_LINES;
static double centres[CENTRES][DIMENSIONS], sums[CENTRES][DIMENSIONS];
static int members[CENTRES];

static double squared_distance(const double *a, const double *b)
{
	double sum = 0;
	for (int d = 0; d < DIMENSIONS; d++) {
		double apart = a[d] - b[d];
		sum += apart * apart;
	}
	return sum;
}

static int nearest(const double *point)
{
	int best = 0;
	double least = squared_distance(point, centres[0]);
	for (int c = 1; c < CENTRES; c++) {
		double distance = squared_distance(point, centres[c]);
		if (distance < least) {
			least = distance;
			best = c;
		}
	}
	return best;
}

static void step(void)
{
	for (int c = 0; c < CENTRES; c++) {
		members[c] = 0;
		for (int d = 0; d < DIMENSIONS; d++)
			sums[c][d] = 0;
	}
	for (int p = 0; p < POINTS; p++) {
		int c = nearest(points[p]);
		members[c]++;
		for (int d = 0; d < DIMENSIONS; d++)
			sums[c][d] += points[p][d];
	}
	for (int c = 0; c < CENTRES; c++)
		for (int d = 0; members[c] && d < DIMENSIONS; d++)
			centres[c][d] = sums[c][d] / members[c];
}

int main(void)
{
	for (int p = 0; p < POINTS; p++)
		for (int d = 0; d < DIMENSIONS; d++)
			points[p][d] = (double)(random_bits() & 1023);
	for (int c = 0; c < CENTRES; c++)
		for (int d = 0; d < DIMENSIONS; d++)
			centres[c][d] = points[c * 37][d];
	PREPARED();
	step();

	REGION_BEGINS();
	for (int s = 0; s < STEPS; s++)
		step();
	REGION_ENDS();

	int total = 0;
	for (int c = 0; c < CENTRES; c++)
		total += members[c];
	return total != POINTS;
}
